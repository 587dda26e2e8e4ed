import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { PostgresVersion } from "../servers/postgres.ts";
import { createBroker } from "./broker.ts";
import { createCrew, type Said } from "./crew.ts";
import { topicOf } from "./genuine.ts";
import { createGround } from "./ground.ts";
import { judge, type Arrival, type Judgement } from "./judge.ts";
import { aggregates, startLoad } from "./load.ts";
import { createNemesis } from "./nemesis.ts";
import { segmentOf, type Choice, type Segment } from "./plan.ts";
import type { Bug } from "./spoiled.ts";
import { storyOf, writeHistory, type History } from "./tell.ts";
import { createTroubles, startPulse, type Happening } from "./troubles.ts";

export interface PlayOptions extends Choice {
  readonly seed: number;
  readonly version: PostgresVersion;
  readonly coordination: "leader" | "partitioned";
  /** Committed events per second, at most. */
  readonly rate: number;
  /** What every relay does wrong, after so many messages of its own. */
  readonly bug?: { readonly name: Bug; readonly after: number };
  /** Called after each segment; false: that was the last. */
  more(played: Played): boolean;
}

/** What became of a segment. */
export interface Played extends Judgement {
  readonly segment: Segment;
  readonly events: number;
  readonly seconds: number;
  readonly restSeconds: number;
  readonly happened: ReadonlyMap<string, number>;
  readonly dead: number;
  readonly timeline: readonly Happening[];
  readonly story: readonly string[];
  /** Where the history is, of a segment that did not hold. */
  readonly folder: string;
}

const leaseMs = 4_000;
const relayOptions = {
  ...{ batch: 100, batchesInFlight: 4, leaseMs, publishTimeoutMs: 3_000, pollIntervalMs: 30 },
  retry: { delaysMs: [50, 100, 200, 400, 800, ...Array<number>(10).fill(1_500)] },
  probeMs: { first: 100, last: 1_000 },
};
const window = relayOptions.batch * relayOptions.batchesInFlight;
const topics = [...new Set(aggregates.map(topicOf))];
/** So many committed events may wait for the relays. */
const mostBehind = 20_000;
/** Everything comes to rest, or nothing has moved for so long. */
const standstillMs = 45_000;

/** Plays segment after segment on one database. Relays go on from one to the next. */
export async function play(options: PlayOptions): Promise<boolean> {
  const folder = join(tmpdir(), `waybill-tailing-${options.seed}-${process.pid}`);
  await using ground = await createGround(options.version, aggregates);
  await using broker = await createBroker();
  const troubles = createTroubles(window, leaseMs);
  let said: Said[] = [];
  await using crew = await createCrew({
    ...{ folder, url: ground.url, port: broker.port },
    options: { ...relayOptions, coordination: options.coordination },
    heard(one) {
      const { line, relay } = one;
      // A frozen relay stands still because it was told to.
      const isFrozen = troubles.list.some(({ kind, relays, until }) => kind === "freeze" && relays.includes(relay) && until > one.at);
      if (line["type"] === "late" && !isFrozen) troubles.stalled([relay], Number(line["ms"]), relay);
      said.push(one);
    },
    gone(relay) {
      if (relay.ending === "0" && relay.told) return;
      if (relay.told && relay.ending === "SIGKILL") return;
      const why = said.findLast((one) => one.relay === relay.name && one.line["type"] === "failed")?.line["error"];
      const what = `${relay.name} ended with ${relay.ending}${relay.told ? "" : " by itself"}: ${why === undefined ? relay.errors() : JSON.stringify(why)}`;
      troubles.begin({ kind: "fallen", relays: [relay.name], copies: window }, 0)();
      // A relay that is starting or draining may need the database.
      if (troubles.lately("crash", 20_000)) troubles.note(what);
      else troubles.alarm(what);
    },
  });
  const nemesis = createNemesis({ ground, broker, crew, troubles, topics, window, leaseMs, isLed: options.coordination === "leader" });
  const pulse = startPulse(ground.url, troubles);
  const bug = options.bug === undefined ? {} : { bug: options.bug };
  let earlier: ReadonlyMap<string, Arrival> = new Map();

  const oneSegment = async (nth: number): Promise<Played> => {
    const segment = segmentOf(options.seed, nth, options);
    const began = performance.now();
    broker.answerAfter(segment.answerMs);
    const load = startLoad(ground, {
      ...{ seed: options.seed, segment: nth, rate: options.rate * segment.pace, writers: 8 },
      isBehind: () => load.committed.size - broker.ids.size > mostBehind,
    });
    const happened = new Map<string, number>();
    for (const step of segment.steps) {
      await sleep(Math.max(0, began + step.at * 1_000 - performance.now()));
      if (performance.now() > began + segment.seconds * 1_000) break;
      if (crew.relays.every(({ told, isFrozen }) => told || isFrozen)) crew.start(step.mode, bug);
      await nemesis.play(step);
      happened.set(step.name, (happened.get(step.name) ?? 0) + 1);
    }
    await sleep(Math.max(0, began + segment.seconds * 1_000 - performance.now()));
    await load.stop();
    await nemesis.heal();
    if (crew.relays.every(({ told }) => told)) crew.start(options.modes[0]!, bug);
    const loaded = performance.now();

    const acked = [...load.committed];
    let [dead, moved, was] = [0, performance.now(), ""];
    let [reached, waits] = [false, Infinity];
    // Where no row waits, what has not come will not come.
    while (!reached && performance.now() - moved < (waits === 0 ? standstillMs / 9 : standstillMs)) {
      const missing = acked.reduce((count, id) => (broker.ids.has(id) ? count : count + 1), 0);
      const [row] = await ground.sql(
        "SELECT count(*) FILTER (WHERE state <> 'PUBLISHED') AS waits, count(*) FILTER (WHERE state = 'DEAD') AS dead FROM outbox_events",
      );
      waits = Number(row!["waits"]);
      const now = `${missing} ${waits} ${broker.arrivals.length}`;
      if (now !== was) [moved, was] = [performance.now(), now];
      reached = missing === 0 && waits === 0;
      // Several relays died with one event alone in their hands: it is not known that the kills were to blame.
      if (Number(row!["dead"]) > 0) {
        troubles.note(`redrive of ${String(row!["dead"])} dead events`);
        dead += (await ground.store.operator.redrive({}, { who: "play", dryRun: false })).events;
      }
      if (!reached) await sleep(200);
    }
    await sleep(300);

    const { events, vanished } = await ground.committed(nth);
    const inLedger = new Set([...events.map(({ id }) => id), ...vanished]);
    const forgotten = acked.filter((id) => !inLedger.has(id));
    if (forgotten.length > 0) troubles.alarm(`the database has forgotten ${forgotten.length} events: ${forgotten.slice(0, 3).join(", ")}`);
    const deaths = troubles.list.filter(({ kind }) => kind !== "stall" && kind !== "cut").length;
    if (dead > 0 && deaths < 3) troubles.alarm(`${dead} events went DEAD, and relays died ${deaths} times`);
    const arrivals = broker.take();
    const history: History = {
      ...{ arrivals, committed: events, said, troubles: troubles.list, timeline: troubles.timeline },
      ...{ written: load.written, takenBack: load.takenBack },
    };
    const rest = { ...(await ground.rows()), reached: waits === 0, vanished };
    const judgement = judge({ ...history, rest, earlier, alarms: troubles.alarms });
    const story = judgement.findings.length === 0 ? [] : await storyOf(judgement.findings, history, ground);
    const at = join(folder, `segment-${nth}`);
    if (story.length > 0) writeHistory(at, { ...history, findings: judgement.findings });
    earlier = new Map(arrivals.filter(({ stored }) => stored).map((arrival) => [arrival.id, arrival]));
    said = [];
    troubles.reset();
    await ground.forget(nth);
    return {
      ...judgement,
      ...{ segment, happened, dead, story, folder: at, events: events.length, timeline: history.timeline },
      seconds: (loaded - began) / 1_000,
      restSeconds: (performance.now() - loaded) / 1_000,
    };
  };
  let held = true;
  try {
    crew.start(options.modes[0]!, bug);
    for (let nth = 0; ; nth++) {
      const played = await oneSegment(nth);
      if (played.findings.length > 0) held = false;
      if (!options.more(played)) break;
    }
    for (const relay of crew.relays) await nemesis.drain(relay);
    const { slots } = await ground.rows();
    if (slots.length > 1) troubles.alarm(`${slots.length} slots are left`);
    for (const alarm of troubles.alarms) {
      held = false;
      console.log(`at the end: ${alarm}`);
    }
  } finally {
    await pulse.stop();
    if (held) rmSync(folder, { recursive: true, force: true });
  }
  return held;
}
