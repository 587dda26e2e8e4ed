import { pathSuite } from "./kit/path.ts";
import { describeEachNats } from "./nats.ts";

await describeEachNats("from PostgreSQL to nats", (_, subject) => pathSuite(subject), ["postgres"]);
