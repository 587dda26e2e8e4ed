import type { Clock } from "../core/clock.ts";
import type { Crew } from "../proof/crew/crew.ts";
import type { Eye, Glance } from "./glance.ts";
import type { Job } from "./jobs.ts";
import type { News } from "./news.ts";
import type { ShopScene } from "./scene.ts";

/** Keeps the scene up to date. */
export interface ShopWatch extends AsyncDisposable {
  scene(): ShopScene;
  hear(news: News): void;
  /** The shop has opened: time counts from here. */
  open(url: string): void;
  enter(phase: ShopScene["phase"]): void;
  refresh(): Promise<void>;
}

interface WatchOptions {
  readonly naive: boolean;
  readonly eye: Eye;
  readonly crew: Crew<Job>;
  readonly clock: Clock;
}

const newsKept = 50;
const lookMs = 500;
const longestLookMs = 2_000;
const rateMs = 3_000;

interface Sample {
  readonly at: number;
  readonly orders: number;
  readonly events: number;
  readonly applied: number;
}

export function createWatch({ naive, eye, crew, clock }: WatchOptions): ShopWatch {
  const ended = new AbortController();
  const news: News[] = [];
  let phase: ShopScene["phase"] = "starting";
  let url: string | null = null;
  let from = clock.monotonic();
  let glance: Glance | null = null;
  let samples: Sample[] = [];

  const refresh = async (): Promise<void> => {
    const latest = await eye.look();
    const now = clock.monotonic();
    const applied = crew.all.reduce((sum, { role, done }) => sum + (role === "subscriber" ? done : 0), 0);
    glance = latest;
    samples = [...samples.filter(({ at }) => at > now - rateMs), { at: now, orders: latest.orders, events: latest.events, applied }];
  };
  const look = async (): Promise<void> => {
    while (!ended.signal.aborted) {
      const began = clock.monotonic();
      // If a look fails, such as on a locked file, the next one makes up for it.
      await refresh().catch(() => undefined);
      // Reading takes locks that writers wait for: the larger the tables, the rarer the looks.
      await clock.sleep(Math.min(longestLookMs, Math.max(lookMs, (clock.monotonic() - began) * 10)), ended.signal);
    }
  };
  const looking = look();

  const rates = (): ShopScene["rates"] => {
    const [first, last] = [samples[0], samples.at(-1)];
    const seconds = first === undefined || last === undefined ? 0 : (last.at - first.at) / 1_000;
    const per = (of: (sample: Sample) => number): number => (seconds === 0 ? 0 : Math.max(0, of(last!) - of(first!)) / seconds);
    return { orders: per(({ orders }) => orders), events: per(({ events }) => events), applied: per(({ applied }) => applied) };
  };

  return {
    scene: () => ({ naive, url, phase, elapsedMs: clock.monotonic() - from, glance, rates: rates(), members: crew.all, news }),
    hear(one) {
      news.push(one);
      if (news.length > newsKept) news.shift();
    },
    open(at) {
      url = at;
      phase = "running";
      from = clock.monotonic();
    },
    enter(next) {
      phase = next;
    },
    refresh,
    async [Symbol.asyncDispose]() {
      ended.abort();
      await looking;
    },
  };
}
