import { describeWith } from "../servers/available.ts";
import { shortPace, redriveSuite } from "./kit/redrive.ts";
import { subject } from "./nats.ts";

await describeWith(["postgres", "nats"], "letters of a consumer on nats", () => redriveSuite(subject, shortPace));
