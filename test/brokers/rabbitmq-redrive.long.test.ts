import { describeWith } from "../servers/available.ts";
import { longPace, redriveSuite } from "./kit/redrive.ts";
import { subject } from "./rabbitmq.ts";

await describeWith(["postgres", "rabbitmq"], "letters of a consumer on rabbitmq", () => redriveSuite(subject, longPace));
