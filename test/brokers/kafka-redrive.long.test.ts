import { describeWith } from "../servers/available.ts";
import { longPace, redriveSuite } from "./kit/redrive.ts";
import { subject } from "./kafka.ts";

await describeWith(["postgres", "kafka"], "letters of a consumer on kafka", () => redriveSuite(subject, longPace));
