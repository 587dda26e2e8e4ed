import { describeWith } from "../servers/available.ts";
import { place } from "./embedded-redrive.ts";
import { shortPace, redriveSuite } from "./kit/redrive.ts";

await describeWith("postgres", "letters of a consumer on the embedded broker", () => redriveSuite(place, shortPace));
