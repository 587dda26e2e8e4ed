import type { PathEvent } from "../../core/path-events.ts";
import { inWords } from "../../core/in-words.ts";
import { notable, type LogLine } from "../log.ts";

/** Something worth a line, and who it happened to. */
export interface News extends LogLine {
  readonly at: Date;
  readonly who: string;
}

/** What a person who watches wants to read; null for what happens with every event. */
export function newsOf(event: PathEvent): LogLine | null {
  switch (event.type) {
    case "relay.failed":
      return {
        level: "warn",
        text: `${event.eventType} of order ${event.aggregateId} was refused (failure ${event.failures}), again in ${inWords(event.retryInMs)}: ${event.error}`,
      };
    case "relay.died":
      return {
        level: "error",
        text: `${event.eventType} of order ${event.aggregateId} is DEAD, its followers are ${event.followers}: ${event.error}`,
      };
    case "subscriber.failed":
      return { level: "warn", text: `could not apply ${event.eventType}, again in ${inWords(event.retryInMs)}: ${event.error}` };
    case "subscriber.died":
      return { level: "error", text: `gave up on ${event.eventType} after ${event.attempts} attempts: ${event.error}` };
    case "subscriber.full":
      return event.full
        ? { level: "warn", text: `takes no more of ${event.topic}: ${event.unacknowledged} deliveries wait behind failing events` }
        : { level: "info", text: `takes more of ${event.topic} again` };
    case "subscriber.missed": {
      const count = event.messages === null ? "some" : `at most ${event.messages}`;
      return { level: "error", text: `messages of ${event.topic} were removed before they were read: ${count}` };
    }
    case "subscriber.forgot":
      return null;
    case "subscriber.seat":
      return { level: "info", text: `${event.held ? "took" : "left"} its seat on ${event.topic}` };
    case "subscriber.trouble":
      return { level: "warn", text: `${event.step} went wrong: ${event.error}` };
    case "relay.claimed":
    case "relay.published":
    case "relay.trouble":
    case "destination.opened":
    case "destination.closed":
    case "lanes.won":
    case "lanes.given":
    case "lanes.lost":
    case "housekeeping.done":
    case "watch.warning":
    case "subscriber.handled":
    case "subscriber.ignored":
      return notable(event);
  }
}

const sameMs = 2_000;

/** True for news that are not the same as the last from there, moments ago: what goes on is told once. */
export function createFresh(): (news: News) => boolean {
  const last = new Map<string, News>();
  return (news) => {
    const before = last.get(news.who);
    last.set(news.who, news);
    return before?.text !== news.text || news.at.getTime() - before.at.getTime() > sameMs;
  };
}

/** After which of them may a window be published twice? Recorded as faults, whoever caused them. */
export function faultOf(event: PathEvent): "destination opened" | "lanes lost" | null {
  if (event.type === "destination.opened") return "destination opened";
  return event.type === "lanes.lost" ? "lanes lost" : null;
}
