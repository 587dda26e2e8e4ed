import pg from "pg";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { Trouble } from "./judge.ts";

/** What happened, and when. */
export interface Happening {
  readonly at: number;
  readonly what: string;
}

/** Troubles of a segment, its timeline, and what the play saw go wrong. */
export interface Troubles {
  readonly list: readonly Trouble[];
  readonly timeline: readonly Happening[];
  readonly alarms: readonly string[];
  note(what: string): void;
  alarm(what: string): void;
  /** Ends with the function that it answers. */
  begin(trouble: Omit<Trouble, "from" | "until">, lingerMs: number): () => void;
  /** A process, or the database, did not get to run for so long, until now. */
  stalled(who: Trouble["relays"], ms: number, what: string): void;
  /** Something of this kind is under way, or was lately. */
  lately(kind: string, withinMs: number): boolean;
  /** Empties everything but what still may have consequences. */
  reset(): void;
}

type Open = { -readonly [K in keyof Trouble]: Trouble[K] };

export function createTroubles(window: number, leaseMs: number): Troubles {
  let [list, timeline, alarms]: [Open[], Happening[], string[]] = [[], [], []];
  const note = (what: string): void => void timeline.push({ at: performance.now(), what });
  return {
    get list() {
      return list;
    },
    get timeline() {
      return timeline;
    },
    get alarms() {
      return alarms;
    },
    note,
    alarm(what) {
      note(`ALARM: ${what}`);
      alarms.push(what);
    },
    begin(trouble, lingerMs) {
      const open: Open = { ...trouble, from: performance.now(), until: Infinity };
      list.push(open);
      return () => void (open.until = performance.now() + lingerMs);
    },
    stalled(relays, ms, what) {
      if (ms < leaseMs / 4) return;
      const now = performance.now();
      note(`${what} stood still for ${Math.round(ms)} ms`);
      list.push({ kind: "stall", relays, from: now - ms - 500, until: now + leaseMs, copies: window });
    },
    lately: (kind, withinMs) => list.some((each) => each.kind === kind && each.until > performance.now() - withinMs),
    reset() {
      const since = performance.now() - 2 * leaseMs;
      list = list.filter(({ until }) => until > since);
      [timeline, alarms] = [[], []];
    },
  };
}

export interface Pulse {
  stop(): Promise<void>;
}

/** Feels whether this process and the database are quick: a machine that is not is no broken promise. */
export function startPulse(url: string, troubles: Troubles): Pulse {
  const ending = new AbortController();
  const everyMs = 100;
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    troubles.stalled("all", now - last - everyMs, "the play");
    last = now;
  }, everyMs);
  const beat = async (): Promise<void> => {
    while (!ending.signal.aborted) {
      const client = new pg.Client({ connectionString: url });
      client.on("error", () => undefined);
      try {
        await client.connect();
        while (!ending.signal.aborted) {
          const began = performance.now();
          await client.query("UPDATE pulse SET beat = beat + 1");
          troubles.stalled("all", performance.now() - began, "the database");
          await sleep(200);
        }
      } catch {
        await sleep(100); // it is away
      } finally {
        await client.end().catch(() => undefined);
      }
    }
  };
  const beating = beat();
  return {
    async stop() {
      clearInterval(timer);
      ending.abort();
      await beating;
    },
  };
}
