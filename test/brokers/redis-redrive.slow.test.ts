import { describeWith } from "../servers/available.ts";
import { shortPace, redriveSuite } from "./kit/redrive.ts";
import { subject } from "./redis.ts";

await describeWith(["postgres", "redis"], "letters of a consumer on redis", () => redriveSuite(subject, shortPace));
