import { later, systemClock } from "./clock.ts";
import { show, WaybillError } from "./errors.ts";
import { inWords } from "./in-words.ts";
import { logText, logTo, sharedLineOf, type Logger, type LogLine } from "./log.ts";
import { safely, type Observe, type PathEvent } from "./path-events.ts";
import { count, visible } from "./text.ts";

/** An observer, a logger that gets a line for each path event that an operator wants to read, or false: nothing is reported. */
export type ObserveOption = Observe | Logger | false;

/** The observer of a relay or a subscriber. Its failures do not affect the path. */
export function observerOf(given: ObserveOption | undefined): Observe {
  if (given === undefined) return safely(notices(toStderr));
  if (given === false) return () => undefined;
  if (isLogger(given)) return safely(logTo(given));
  if (typeof given === "function") return safely(given);
  throw new WaybillError(
    "INVALID_OPTION",
    `observe must be a function, a logger with info, warn and error, or false for silence, not ${show(given)}`,
  );
}

const levels = ["info", "warn", "error"] as const satisfies readonly LogLine["level"][];

function isLogger(given: unknown): given is Logger {
  const methods = (typeof given === "object" && given !== null) || typeof given === "function" ? (given as Partial<Logger>) : {};
  return levels.every((level) => typeof methods[level] === "function");
}

/** `console` ignores a stderr that is closed or full; `process.stderr` would end the process. */
const toStderr = (line: LogLine): void => console.error(logText(new Date(systemClock.now()), { ...line, text: `waybill: ${line.text}` }));

const recoveries: ReadonlySet<PathEvent["type"]> = new Set([
  "destination.closed",
  "relay.recovered",
  "subscriber.recovered",
  "subscriber.full",
]);

/** At most `mostLines` lines of a kind are written in `limitMs`; the others are counted. */
const mostLines = 5;
const limitMs = 10_000;

interface Kind {
  until: number;
  written: number;
  leftOut: number;
}

interface Time {
  monotonic(): number;
  later(ms: number, run: () => void): void;
}

/** Writes deaths, troubles and recoveries. 5,000 events that die for one reason are a few lines and a number. */
export function notices(write: (line: LogLine) => void, time: Time = { monotonic: systemClock.monotonic, later }): Observe {
  const kinds = new Map<string, Kind>();
  const conclude = (name: string, kind: Kind): void => {
    if (kind.leftOut === 0) return;
    write({ level: "warn", text: `left out ${count(kind.leftOut, "more line")} about ${name} within ${inWords(limitMs)}` });
    kind.leftOut = 0;
  };
  const limited = (name: string, line: LogLine): void => {
    const now = time.monotonic();
    let kind = kinds.get(name);
    if (kind === undefined || now >= kind.until) {
      if (kind !== undefined) conclude(name, kind);
      kinds.set(name, (kind = { until: now + limitMs, written: 0, leftOut: 0 }));
    }
    kind.written += 1;
    if (kind.written < mostLines) return write(line);
    if (kind.written === mostLines)
      return write({ ...line, text: `${line.text} (more of ${name} are only counted for ${inWords(kind.until - now)})` });
    kind.leftOut += 1;
    const current = kind;
    if (kind.leftOut === 1) time.later(kind.until - now, () => conclude(name, current));
  };
  return (event) => {
    const line = sharedLineOf(event);
    if (line === null || (line.level === "info" && !recoveries.has(event.type))) return;
    const step = "step" in event ? ` (${event.step})` : "";
    const whose = "consumer" in event ? ` of ${visible(event.consumer)}` : "";
    limited(`${event.type}${step}${whose}`, line);
  };
}
