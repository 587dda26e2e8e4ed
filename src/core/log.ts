import { inWords } from "./in-words.ts";
import type { Observe, PathEvent } from "./path-events.ts";
import { count, redactText, visible } from "./text.ts";

export interface LogLine {
  readonly level: "info" | "warn" | "error";
  readonly text: string;
}

/** Such as `console` or a logger of pino. */
export type Logger = Readonly<Record<LogLine["level"], (text: string) => void>>;

type Of<T extends PathEvent["type"]> = Extract<PathEvent, { readonly type: T }>;
type Sentences = { readonly [T in PathEvent["type"]]: (event: Of<T>) => LogLine | null };

const info = (text: string): LogLine => ({ level: "info", text });
const warn = (text: string): LogLine => ({ level: "warn", text });
const error = (text: string): LogLine => ({ level: "error", text });
const quiet = (): null => null;

/** One sentence for each path event; none for those that come with every event. */
export const sentences: Sentences = {
  "relay.claimed": quiet,
  "relay.published": quiet,
  "relay.failed": (event) =>
    warn(`${named(event)} was refused (failure ${event.failures}), next attempt in ${inWords(event.retryInMs)}: ${event.error}`),
  "relay.died": (event) => error(`${named(event)} is DEAD, its followers are ${event.followers}: ${event.error}`),
  "relay.trouble": ({ step, error: why }) => warn(`${step} went wrong: ${why}`),
  "relay.mode": ({ mode, why }) => (mode === "tail" ? info("reads the database's log") : info(`polls${why === "" ? "" : `: ${why}`}`)),
  "relay.recovered": ({ step, ms }) => info(`${step} works again after ${inWords(ms)}`),
  "destination.opened": ({ topic, probeInMs, error: why }) =>
    warn(`${topic} does not take events, next probe in ${inWords(probeInMs)}: ${why}`),
  "destination.closed": ({ topic }) => info(`${topic} takes events again`),
  "lanes.won": (event) => passed("won", event),
  "lanes.given": (event) => passed("gave", event),
  "lanes.lost": ({ lanes }) => warn(`lost ${count(lanes.length, "lane")} to another relay`),
  "housekeeping.done": housekept,
  "watch.warning": ({ text }) => warn(text),
  "subscriber.started": ({ topics }) => info(`started to receive ${topics.join(", ")}`),
  "subscriber.handled": quiet,
  "subscriber.failed": ({ eventType, id, attempts, retryInMs, error: why }) =>
    warn(`could not apply ${eventType} ${id} (attempt ${attempts}), next attempt in ${inWords(retryInMs)}: ${why}`),
  "subscriber.died": ({ eventType, id, attempts, error: why }) =>
    error(`gave up on ${eventType} ${id} after ${count(attempts, "attempt")}: ${why}`),
  "subscriber.ignored": quiet,
  "subscriber.full": ({ topic, unacknowledged, full }) =>
    full
      ? warn(`takes no more of ${topic}: ${unacknowledged} deliveries wait behind failing events`)
      : info(`takes more of ${topic} again`),
  "subscriber.missed": ({ topic, messages }) =>
    error(`messages of ${topic} were removed before they were read: ${messages === null ? "some" : `at most ${messages}`}`),
  "subscriber.forgot": quiet,
  "subscriber.seat": ({ topic, held }) => info(`${held ? "took" : "left"} its seat on ${topic}`),
  "subscriber.trouble": ({ step, error: why }) => warn(`${step} went wrong: ${why}`),
  "subscriber.recovered": ({ step, ms }) => info(`${step} works again after ${inWords(ms)}`),
};

/** A line for an operator, without passwords of URLs and control characters. Null for path events that come with every event. */
export function lineOf(event: PathEvent): LogLine | null {
  const line = (sentences[event.type] as (event: PathEvent) => LogLine | null)(event);
  // Names and errors come from rows and messages that any program may have written, and the line may go straight to a terminal.
  return line === null ? null : { ...line, text: visible(redactText(line.text)) };
}

/** The line for a log that relays and several subscribers share: a subscriber's begins with its consumer. */
export function sharedLineOf(event: PathEvent): LogLine | null {
  const line = lineOf(event);
  return line === null || !("consumer" in event) ? line : { ...line, text: `${visible(event.consumer)}: ${line.text}` };
}

/** An observer that writes a line for each path event that an operator wants to read. A subscriber's line begins with its consumer. */
export const logTo =
  (logger: Logger): Observe =>
  (event) => {
    const line = sharedLineOf(event);
    // The logger's result is passed on: `safely` takes care of a promise that rejects.
    if (line !== null) return logger[line.level](line.text);
  };

const named = ({ id, eventType, aggregateType, aggregateId }: Of<"relay.failed" | "relay.died">): string =>
  `event ${id} (${eventType} of ${aggregateType} ${aggregateId})`;

const passed = (verb: string, { lanes, turn }: Of<"lanes.won" | "lanes.given">): LogLine | null =>
  lanes.length === 0 || turn ? null : info(`${verb} ${count(lanes.length, "lane")}`);

function housekept({ purged, created, dropped, moved }: Of<"housekeeping.done">): LogLine | null {
  const done = [
    ...(purged > 0 ? [`purged ${count(purged, "event")}`] : []),
    ...(created.length > 0 ? [`made ${created.join(", ")}`] : []),
    ...(dropped.length > 0 ? [`dropped ${dropped.join(", ")}${moved > 0 ? `, out of which ${count(moved, "event")} moved` : ""}`] : []),
  ];
  return done.length === 0 ? null : info(done.join("; "));
}

export const logText = (at: Date, { level, text }: LogLine): string => `${at.toISOString()} ${level.padEnd(5)} ${redactText(text)}`;

export const logJson = (at: Date, level: LogLine["level"], event: object): string =>
  redactText(JSON.stringify({ time: at.toISOString(), level, ...event }));
