import { describeWith } from "../servers/available.ts";
import { pathSuite } from "./kit/path.ts";
import { subject } from "./rabbitmq.ts";

await describeWith(["postgres", "rabbitmq"], "from PostgreSQL to rabbitmq", () => pathSuite(subject));
