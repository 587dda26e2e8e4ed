import type { Clock } from "./clock.ts";
import { inWords } from "./in-words.ts";
import { LANES } from "./lane.ts";

/** One live setting, as it was read from a server. */
export interface Finding {
  /** As the server calls it, with what it belongs to: `appendfsync`, `min.insync.replicas of order.events`. */
  readonly setting: string;
  /** As it was read; null where it could not be. */
  readonly value: string | null;
  /** `unknown` where the server, its version or our rights do not tell. */
  readonly verdict: "good" | "bad" | "unknown";
  /** The promises that a bad value breaks, by their letters in docs/promises.md: `L`, `LO`. */
  readonly breaks: string;
  /** What it means, and for a bad or unknown one what to do about it. */
  readonly why: string;
}

export const good = (setting: string, value: string, why: string): Finding => ({ setting, value, verdict: "good", breaks: "", why });
export const bad = (setting: string, value: string | null, breaks: string, why: string): Finding => ({
  setting,
  value,
  verdict: "bad",
  breaks,
  why,
});
export const unknown = (setting: string, value: string | null, why: string): Finding => ({
  setting,
  value,
  verdict: "unknown",
  breaks: "",
  why,
});

/** What a server's clock said, between two looks at our own. */
export interface ClockSighting {
  readonly beforeMs: number;
  readonly serverMs: number;
  readonly afterMs: number;
}

const driftMs = 2_000;

export async function sightClock(clock: Clock, read: () => Promise<number>): Promise<ClockSighting> {
  const beforeMs = clock.now();
  const serverMs = await read();
  return { beforeMs, serverMs, afterMs: clock.now() };
}

/** Only what the time between question and answer cannot explain counts. */
export function judgeClock({ beforeMs, serverMs, afterMs }: ClockSighting): Finding {
  const half = (afterMs - beforeMs) / 2;
  const ahead = Math.round(serverMs - beforeMs - half);
  const value = `${inWords(Math.abs(ahead))} ${ahead < 0 ? "behind" : "ahead"}`;
  if (Math.abs(ahead) - half <= driftMs) return good("clock", value, "The database and this machine agree on the time.");
  return bad(
    "clock",
    value,
    "V",
    `An event that a service delays until a moment of its own clock goes out that much too ${ahead < 0 ? "late" : "early"}, and ages that people compare with their own clock are wrong: let both machines follow one time server. Leases do not suffer: a relay counts another's lease by its own monotonic clock once it has seen it renewed.`,
  );
}

/** Something that migrate makes. */
export interface Thing {
  readonly kind: "table" | "index" | "unique index" | "trigger" | "function" | "sequence" | "view";
  readonly name: string;
}

const broken: Readonly<Record<Thing["kind"], string>> = {
  table: "L",
  function: "L",
  sequence: "O",
  "unique index": "E",
  trigger: "D",
  index: "I",
  view: "V",
};

export function judgeThings(expected: readonly Thing[], isThere: (thing: Thing) => boolean): Finding {
  const missing = expected.filter((thing) => !isThere(thing));
  if (missing.length === 0) return good("objects", `${expected.length} of ${expected.length}`, "Everything that migrate makes is there.");
  return bad(
    "objects",
    `missing: ${missing.map(({ kind, name }) => `${kind} ${name}`).join(", ")}`,
    [..."LOEDIV"].filter((letter) => missing.some(({ kind }) => broken[kind] === letter)).join(""),
    "The database lacks what migrate made: without an index, one aggregate that waits slows all others down; without a trigger, a used idempotency key adds again. Make it anew as waybill migrate --print shows it.",
  );
}

/** `version` is 0 where there are no tables, and null where we may not look. */
export function judgeSchema(version: number | null, wanted: number): Finding {
  const setting = "schema version";
  if (version === null) return unknown(setting, null, "This user may not read Waybill's tables: run doctor as the user that relays have.");
  if (version === wanted) return good(setting, String(version), "The tables are those of this version.");
  const why =
    version > wanted
      ? `This code knows version ${wanted} at most, and refuses to work with newer tables: upgrade waybill here.`
      : `This code needs version ${wanted}, and no relay starts before: run waybill migrate.`;
  return bad(setting, version === 0 ? "none" : String(version), "L", why);
}

export function judgeLanes(rows: number | null): Finding {
  if (rows === null) return unknown("lanes", null, "This user may not read Waybill's tables: run doctor as the user that relays have.");
  if (rows === LANES) return good("lanes", String(rows), "Every lane can be owned.");
  return bad(
    "lanes",
    String(rows),
    "L",
    `Events of a lane without a row are never claimed: there must be rows for the lanes 0 to ${LANES - 1}.`,
  );
}

/** Numbers with dots between them, compared one by one. */
export function isAtLeast(version: string, least: string): boolean {
  const [have, need] = [version, least].map((text) => text.split(".").map((part) => Number.parseInt(part, 10) || 0));
  for (let i = 0; i < need!.length; i++) if ((have![i] ?? 0) !== need![i]) return (have![i] ?? 0) > need![i]!;
  return true;
}
