import { describeWith } from "../servers/available.ts";
import { pathSuite } from "./kit/path.ts";
import { subject } from "./redis.ts";

await describeWith(["postgres", "redis"], "from PostgreSQL to redis", () => pathSuite(subject));
