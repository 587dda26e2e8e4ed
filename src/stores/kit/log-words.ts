import type { LogLook, LogStanding } from "../../contracts/log-tailer.ts";
import { inWords } from "../../core/in-words.ts";
import { inBytes } from "../../core/text.ts";

/** How the slot stands, in words that follow its name and a colon. */
export function standingInWords(is: LogStanding): string {
  switch (is.state) {
    case "missing":
      return "there is none";
    case "preparing":
      return is.waitsFor === null ? "the server is making it" : `the server is making it, and waits for ${is.waitsFor}`;
    case "lost":
      return `lost: ${is.why}`;
    case "unread":
      return "no process reads it";
    case "waits for standby":
      return `the server holds the log back until the standby ${is.standby} has it`;
    case "lagging":
      return "read, and far behind";
    case "streaming":
      return "read";
  }
}

export const behindInWords = ({ behindBytes, behindMs }: LogLook): string =>
  `${inBytes(behindBytes)}${behindMs === null ? "" : `, ${inWords(Math.max(0, Math.round(behindMs)))}`}`;
