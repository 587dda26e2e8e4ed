import { shortPace, redriveSuite } from "./kit/redrive.ts";
import { describeOn, subjectOn } from "./rabbitmq.ts";

await describeOn(["rabbitmq"], "letters of a consumer on rabbitmq", (on) => redriveSuite(subjectOn(on), shortPace), ["postgres"]);
