import type { PathEvent } from "../../core/path-events.ts";
import { inWords } from "../duration.ts";
import { notable, type LogLine } from "../log.ts";

/** Something worth a line, and who it happened to. */
export interface News extends LogLine {
  readonly at: Date;
  readonly who: string;
}

/** What a person who watches wants to read; null for what happens with every event. */
export function newsOf(event: PathEvent): LogLine | null {
  if (event.type === "subscriber.failed") {
    return { level: "warn", text: `could not apply ${event.eventType}, next attempt in ${inWords(event.retryInMs)}: ${event.error}` };
  }
  if (event.type === "subscriber.died") {
    return { level: "error", text: `gave up on ${event.eventType} after ${event.attempts} attempts: ${event.error}` };
  }
  if (event.type === "subscriber.seat") return { level: "info", text: `${event.held ? "took" : "left"} its seat on ${event.topic}` };
  if (event.type === "subscriber.trouble") return { level: "warn", text: `${event.step} went wrong: ${event.error}` };
  return notable(event);
}

/** After which of them may a window be published twice? Recorded as faults, whoever caused them. */
export function faultOf(event: PathEvent): "destination opened" | "lanes lost" | null {
  if (event.type === "destination.opened") return "destination opened";
  return event.type === "lanes.lost" ? "lanes lost" : null;
}
