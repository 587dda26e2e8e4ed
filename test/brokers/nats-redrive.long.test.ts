import { longPace, redriveSuite } from "./kit/redrive.ts";
import { describeEachNats } from "./nats.ts";

await describeEachNats("letters of a consumer on nats", (_, subject) => redriveSuite(subject, longPace), ["postgres"]);
