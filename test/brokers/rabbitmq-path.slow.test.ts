import { pathSuite } from "./kit/path.ts";
import { describeOn, subjectOn } from "./rabbitmq.ts";

await describeOn(["rabbitmq", "rabbitmq4"], "from PostgreSQL to rabbitmq", (on) => pathSuite(subjectOn(on)), ["postgres"]);
