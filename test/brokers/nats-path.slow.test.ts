import { describeWith } from "../servers/available.ts";
import { pathSuite } from "./kit/path.ts";
import { subject } from "./nats.ts";

await describeWith(["postgres", "nats"], "from PostgreSQL to nats", () => pathSuite(subject));
