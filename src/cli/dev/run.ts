import { systemClock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import type { PathEvent } from "../../core/path-events.ts";
import { systemRandom } from "../../core/random.ts";
import { follow } from "../../core/signal.ts";
import { stoppedAtOnce } from "../failure.ts";
import type { Terminal } from "../terminal.ts";
import { createCrew, type Crew } from "./crew.ts";
import { causeFaults } from "./faults.ts";
import { createEye, type Eye } from "./glance.ts";
import { startLoad, type Load } from "./load.ts";
import { createFresh, faultOf, newsOf, type News } from "./news.ts";
import { dataFolder, prepare } from "./prepare.ts";
import { createShow, type Show } from "./show.ts";
import { shopFiles, subscriberNames } from "./shop.ts";
import { summarise } from "./summary.ts";
import { createWatch, type Watch } from "./watch.ts";
import { inWords, judge } from "./verdict.ts";

export interface ShopOptions {
  readonly ordersPerSecond: number;
  readonly relays: number;
  readonly port: number;
  readonly data: string | undefined;
  readonly faults: boolean;
  readonly naive: boolean;
  readonly exitAfterMs: number | undefined;
}

const clock = systemClock;
const deliverMs = 40_000;
const drainMs = 8_000;
const roundMs = 12_000;

/** The whole shop, from empty tables to the summary. */
export async function runShop(terminal: Terminal, options: ShopOptions): Promise<void> {
  await using folder = dataFolder(options.data);
  const closeBooks = await prepare(folder.path, options, clock);
  await using eye = createEye(folder.path, clock);
  await using shop = openShop(terminal, options, folder.path, eye);
  const { show, watch, crew, say, ending } = shop;

  const showing = show.run(watch.scene);
  const { load } = await shop.start();
  await shop.untilEnd(load);
  if (ending.insists()) throw stoppedAtOnce();

  watch.enter("draining");
  say("info", "shop", "no more orders; everything that was begun is finished and delivered");
  await Promise.race([crew.failed, ending.insisted, drain(load, crew, eye, say)]);
  if (ending.insists()) throw stoppedAtOnce();
  watch.enter("done");
  await watch.refresh().catch(() => undefined);
  await show.close();
  await showing;
  await closeBooks();
  await conclude(terminal, options, folder.path);
}

type Say = (level: News["level"], who: string, text: string) => void;

interface Shop extends AsyncDisposable {
  readonly show: Show;
  readonly watch: Watch;
  readonly crew: Crew;
  readonly say: Say;
  readonly ending: { insists(): boolean; readonly insisted: Promise<void> };
  start(): Promise<{ readonly load: Load }>;
  untilEnd(load: Load): Promise<void>;
}

function openShop(terminal: Terminal, options: ShopOptions, folder: string, eye: Eye): Shop {
  const show = createShow(terminal, clock);
  const fresh = createFresh();
  const asked = new AbortController();
  const insisted = new AbortController();
  const say: Say = (level, who, text) => {
    const news = { at: new Date(clock.now()), who, level, text };
    if (!fresh(news)) return;
    watch.hear(news);
    show.news(news);
  };
  const noting = new Set<Promise<void>>();
  const record = (kind: string, what: string): Promise<void> => {
    const note = eye
      .record(kind, what)
      .catch((error: unknown) => say("warn", "shop", `a fault could not be recorded: ${asError(error).message}`))
      .finally(() => noting.delete(note));
    noting.add(note);
    return note;
  };
  const onPath = (name: string, event: PathEvent): void => {
    const line = newsOf(event);
    if (line !== null) say(line.level, name, line.text);
    const fault = faultOf(event);
    if (fault !== null) void record(fault, `${name}: ${line?.text ?? ""}`);
  };
  const crew = createCrew({ clock, onPath, onDeath: (name, pid, how) => say("error", name, `pid ${pid ?? "-"} died: ${how}`) });
  const watch = createWatch({ naive: options.naive, eye, crew, clock });
  const killAll = (): void => crew.killAll();
  process.on("exit", killAll);
  terminal.onSignal((nth) => {
    asked.abort();
    if (nth < 2) return;
    killAll();
    insisted.abort();
  });

  return {
    ...{ show, watch, crew, say },
    ending: { insists: () => insisted.signal.aborted, insisted: aborted(insisted.signal) },
    async start() {
      const { naive, relays } = options;
      const names = Array.from({ length: naive ? 0 : relays }, (_, i) => `relay-${i + 1}`);
      const orders = crew.start({ role: "orders", name: "orders", folder, naive, port: options.port });
      const others = [
        ...names.map((name) => crew.start({ role: "relay", name, folder })),
        ...subscriberNames.map((name) => crew.start({ role: "subscriber", name, folder, naive })),
      ];
      const ready = Promise.all([orders, ...others]);
      await Promise.race([ready, crew.failed, aborted(insisted.signal)]);
      if (insisted.signal.aborted) throw stoppedAtOnce();
      const { port } = await orders;
      const load = startLoad({ port: port ?? options.port, perSecond: options.ordersPerSecond, clock, random: systemRandom });
      const url = `http://127.0.0.1:${port}`;
      watch.open(url);
      say("info", "shop", `open: POST ${url}/orders takes orders, data is in ${folder}`);
      return { load };
    },
    async untilEnd(load) {
      const done = follow(asked.signal);
      const over = options.exitAfterMs === undefined ? aborted(done.signal) : clock.sleep(options.exitAfterMs, done.signal);
      const round = Math.min(roundMs, options.exitAfterMs ?? roundMs);
      const announce = async (kind: string, what: string): Promise<void> => {
        say("error", "fault", what);
        await record(kind, what);
      };
      const parts = { crew, load, clock, flag: shopFiles(folder).stopped, roundMs: round };
      const faults = options.faults
        ? causeFaults({ ...parts, announce, say: (text) => say("warn", "fault", text) }, done.signal)
        : Promise.resolve();
      try {
        await Promise.race([crew.failed, over, faults.then(() => over)]);
      } finally {
        done.abort();
        done.release();
        await faults;
      }
    },
    async [Symbol.asyncDispose]() {
      crew.killAll();
      await crew.drain(
        crew.members.map(({ name }) => name),
        0,
      );
      process.off("exit", killAll);
      await watch[Symbol.asyncDispose]();
      await show.close();
      await Promise.all(noting);
    },
  };
}

/** Load first, then whoever takes it, then the path once nothing is on it. */
async function drain(load: Load, crew: Crew, eye: Eye, say: Say): Promise<void> {
  await load.stop();
  const end = async (names: readonly string[]): Promise<void> => {
    for (const name of await crew.drain(names, drainMs)) say("error", name, `did not end within ${drainMs} ms, and was killed`);
  };
  await end(["orders"]);
  const deadline = clock.monotonic() + deliverMs;
  // A look that fails, on a locked file say, is made up for by the next.
  while (!(await eye.delivered().catch(() => false)) && clock.monotonic() < deadline) await clock.sleep(100);
  await end(crew.members.map(({ name }) => name).filter((name) => name !== "orders"));
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

/** The summary for people, then for programs, then the exit code. */
async function conclude({ out, screen }: Terminal, options: ShopOptions, folder: string): Promise<void> {
  const summary = await summarise(folder);
  const verdict = judge(summary, options.naive);
  if (!out.json) {
    out.line("");
    for (const line of inWords(summary, verdict, options.naive)) out.line(line);
  }
  if (out.json || options.exitAfterMs !== undefined || screen === undefined) {
    const { promises, held } = verdict;
    out.line(JSON.stringify({ mode: options.naive ? "naive" : "outbox", ...summary, promises, held }));
  }
  if (!verdict.held) throw new WaybillError("PROMISE_BROKEN", `${options.naive ? "the naive shop: " : ""}${verdict.broken.join("; ")}`);
}
