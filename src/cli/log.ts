import type { PathEvent } from "../core/path-events.ts";
import { inWords } from "../core/in-words.ts";
import { count } from "./output.ts";
import { redactText } from "./redact.ts";

export interface LogLine {
  readonly level: "info" | "warn" | "error";
  readonly text: string;
}

/** What an operator wants to read; null for what happens with every batch. */
export function notable(event: PathEvent): LogLine | null {
  switch (event.type) {
    case "relay.failed":
      return {
        level: "warn",
        text: `event ${event.id} (${event.eventType} of ${event.aggregateType} ${event.aggregateId}) was refused (failure ${event.failures}), next attempt in ${inWords(event.retryInMs)}: ${event.error}`,
      };
    case "relay.died":
      return {
        level: "error",
        text: `event ${event.id} (${event.eventType} of ${event.aggregateType} ${event.aggregateId}) is DEAD, its followers are ${event.followers}: ${event.error}`,
      };
    case "relay.trouble":
      return { level: "warn", text: `${event.step} went wrong: ${event.error}` };
    case "destination.opened":
      return { level: "warn", text: `${event.topic} does not take events, next probe in ${inWords(event.probeInMs)}: ${event.error}` };
    case "destination.closed":
      return { level: "info", text: `${event.topic} takes events again` };
    case "lanes.won":
    case "lanes.given":
      return event.lanes.length === 0 || event.turn
        ? null
        : { level: "info", text: `${event.type === "lanes.won" ? "won" : "gave"} ${count(event.lanes.length, "lane")}` };
    case "lanes.lost":
      return { level: "warn", text: `lost ${count(event.lanes.length, "lane")} to another relay` };
    case "housekeeping.done":
      return housekept(event);
    case "watch.warning":
      return { level: "warn", text: event.text };
    case "relay.claimed":
    case "relay.published":
    case "subscriber.handled":
    case "subscriber.failed":
    case "subscriber.died":
    case "subscriber.ignored":
    case "subscriber.full":
    case "subscriber.missed":
    case "subscriber.forgot":
    case "subscriber.seat":
    case "subscriber.trouble":
      return null;
  }
}

function housekept({ purged, created, dropped, moved }: PathEvent & { type: "housekeeping.done" }): LogLine | null {
  const done = [
    ...(purged > 0 ? [`purged ${count(purged, "event")}`] : []),
    ...(created.length > 0 ? [`made ${created.join(", ")}`] : []),
    ...(dropped.length > 0 ? [`dropped ${dropped.join(", ")}${moved > 0 ? `, out of which ${count(moved, "event")} moved` : ""}`] : []),
  ];
  return done.length === 0 ? null : { level: "info", text: done.join("; ") };
}

export function logText(at: Date, { level, text }: LogLine): string {
  return `${at.toISOString()} ${level.padEnd(5)} ${redactText(text)}`;
}

export function logJson(at: Date, level: LogLine["level"], event: object): string {
  return redactText(JSON.stringify({ time: at.toISOString(), level, ...event }));
}
