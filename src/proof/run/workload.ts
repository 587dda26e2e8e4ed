import { createHash } from "node:crypto";
import type { Draft } from "../../core/event.ts";
import { DEFAULT_MAX_PAYLOAD_BYTES } from "../../core/draft.ts";
import type { Random } from "../../core/random.ts";
import { typesOf } from "./ground.ts";
import type { Load, RunPlace } from "./task.ts";

/** An aggregate as histories and tables name it. */
export const aggregateName = (of: { readonly aggregateType: string; readonly aggregateId: string }): string =>
  `${of.aggregateType}/${of.aggregateId}`;

export interface Aggregate {
  readonly aggregateType: string;
  readonly aggregateId: string;
}

export function aggregatesOf(place: RunPlace, load: Load): readonly Aggregate[] {
  return typesOf(place).flatMap((aggregateType) =>
    Array.from({ length: load.aggregates }, (_, i) => ({ aggregateType, aggregateId: `a-${i}` })),
  );
}

/** What one transaction does. */
export interface Plan {
  /** Sorted by name, so that two transactions never deadlock. */
  readonly changes: readonly { readonly aggregate: Aggregate; readonly events: number }[];
  /** How many more events of the last aggregate are undone with a savepoint, and never seen. */
  readonly undone: number;
  readonly ends: "commit" | "roll back";
  /** It writes to another table first, and so has its place among transactions long before it locks an aggregate. */
  readonly elsewhere: boolean;
  readonly sleepMs: number;
  /** True: events are inserted last. False: at once. */
  readonly buffered: boolean;
}

export function planOf(random: Random, aggregates: readonly Aggregate[], load: Load): Plan {
  const below = (n: number): number => Math.floor(random.next() * n);
  const chance = (share: number): boolean => random.next() < share;
  const pick = (): Aggregate => (chance(load.hot) ? aggregates[0]! : aggregates[below(aggregates.length)]!);
  const chosen = new Set(Array.from({ length: chance(0.2) ? 2 : 1 }, pick));
  const sorted = [...chosen].sort((a, b) => (aggregateName(a) < aggregateName(b) ? -1 : 1));
  return {
    changes: sorted.map((aggregate) => ({ aggregate, events: chance(0.02) ? 12 : 1 + below(3) })),
    undone: chance(0.08) ? 1 + below(2) : 0,
    ends: chance(0.1) ? "roll back" : "commit",
    elsewhere: chance(0.15),
    sleepMs: chance(0.1) ? below(load.sleepMs) : 0,
    buffered: chance(0.5),
  };
}

type Content = Pick<Draft, "payload" | "contentType" | "headers">;

/** Content that is difficult to carry, chosen at random; most is ordinary. The content type is JSON unless it is set. */
export function contentOf(random: Random, n: number, { bytes, hard: share, large }: Load): Content {
  const ordinary: Content = { payload: { n, text: "x".repeat(bytes) } };
  if (random.next() < large) return { payload: "y".repeat(DEFAULT_MAX_PAYLOAD_BYTES - 2) };
  if (random.next() >= share) return ordinary;
  const hard: readonly Content[] = [
    { payload: new Uint8Array(0), contentType: "application/octet-stream" },
    { payload: "" },
    { payload: null },
    { payload: { n, text: "🚚 Zoë \u{10ffff}" } },
    { payload: { n, text: "nought \u0000 and half \ud83d" } },
    { payload: Uint8Array.from({ length: 256 }, (_, i) => i), contentType: "image/png" },
    { payload: Buffer.from(`{"n": ${n}, "big": 9007199254740993, "small":1.10 }`), contentType: "application/json" },
    { payload: { n, ["__proto__"]: 1, html: "<script>", lines: "a\r\nb" } },
  ];
  return { ...hard[Math.floor(random.next() * hard.length)]!, headers: hardHeaders };
}

const bytesOf = (payload: unknown): Uint8Array => (payload instanceof Uint8Array ? payload : Buffer.from(JSON.stringify(payload)));

/** The parts of an event that must arrive unchanged. */
export interface Carried {
  readonly type: string;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: Uint8Array;
}

export function shaOf({ type, contentType, headers, data }: Carried): string {
  const sorted = Object.entries(headers).sort(([a], [b]) => (a < b ? -1 : 1));
  const rest = JSON.stringify([type, contentType, sorted]);
  return createHash("sha256").update(rest).update("\0").update(data).digest("base64url").slice(0, 16);
}

export const shaOfDraft = ({ type, contentType = "application/json", headers = {}, payload }: Draft): string =>
  shaOf({ type, contentType, headers, data: bytesOf(payload) });

/** The header with the count of the event's aggregate, whatever the payload is. */
export const countHeader = "n";
/** Further headers of an event that is difficult to carry. */
const hardHeaders: Readonly<Record<string, string>> = { "Mixed-Case": "Zoë 🚚", percent: "100% %41", empty: "", spaced: "a  b" };
/** The header with the text that must not be in any output. */
export const canaryHeader = "tenant";
