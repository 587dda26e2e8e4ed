import { describeWith } from "../servers/available.ts";
import { pathSuite } from "./kit/path.ts";
import { subject } from "./kafka.ts";

await describeWith(["postgres", "kafka"], "from PostgreSQL to kafka", () => pathSuite(subject));
