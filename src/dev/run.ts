import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import type { PathEvent } from "../core/path-events.ts";
import { lineOf } from "../core/log.ts";
import { systemRandom } from "../core/random.ts";
import { follow, onAbort, shared } from "../core/time.ts";
import { stoppedAtOnce } from "../core/service.ts";
import { createCrew, type Crew } from "../proof/crew/crew.ts";
import type { Job } from "./jobs.ts";
import { causeFaults } from "./faults.ts";
import { createEye, type Eye } from "./glance.ts";
import { startLoad, type OrderLoad } from "./load.ts";
import { createFresh, faultOf, type News } from "./news.ts";
import { dataFolder, prepare } from "./prepare.ts";
import { createShow, type Audience, type Show } from "./show.ts";
import { shopFiles, subscriberNames } from "./shop.ts";
import { summarise } from "./summary.ts";
import { createWatch, type ShopWatch } from "./watch.ts";
import { inWords, judge } from "./verdict.ts";

interface ShopOptions {
  readonly ordersPerSecond: number;
  readonly relays: number;
  readonly port: number;
  readonly data: string | undefined;
  readonly faults: boolean;
  readonly naive: boolean;
  readonly exitAfterMs: number | undefined;
}

const clock = systemClock;
const program = fileURLToPath(new URL(`./child${extname(import.meta.url)}`, import.meta.url));
const deliverMs = 40_000;
const drainMs = 8_000;
/** The shop ends when a process fails to begin this many times in a row. */
const mostInVain = 5;
const roundMs = 12_000;

/** The whole shop, from empty tables to the summary. */
export async function runShop(terminal: Audience, options: ShopOptions): Promise<void> {
  await using folder = dataFolder(options.data);
  const closeBooks = await prepare(folder.path, options, clock);
  await using eye = createEye(folder.path, clock);
  await using shop = openShop(terminal, options, folder.path, eye);
  const { show, watch, crew, say, ending, stuck } = shop;

  const showing = show.run(watch.scene);
  const { load } = await shop.start();
  await shop.untilEnd(load);
  if (ending.insists()) throw stoppedAtOnce();

  watch.enter("draining");
  say("info", "shop", "no more orders; everything that was begun is finished and delivered");
  await Promise.race([ending.insisted, drain(load, crew, eye, say), stuck]);
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
  readonly watch: ShopWatch;
  readonly crew: Crew<Job>;
  readonly say: Say;
  /** Rejects when a process that had begun cannot be kept running. */
  readonly stuck: Promise<never>;
  readonly ending: { insists(): boolean; readonly insisted: Promise<void> };
  start(): Promise<{ readonly load: OrderLoad }>;
  untilEnd(load: OrderLoad): Promise<void>;
}

function openShop(terminal: Audience, options: ShopOptions, folder: string, eye: Eye): Shop {
  const show = createShow(terminal, clock);
  const fresh = createFresh();
  const asked = new AbortController();
  const insisted = shared(new AbortController()); // every process that starts listens to it
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
    const line = lineOf(event);
    if (line !== null) say(line.level, name, line.text);
    const fault = faultOf(event);
    if (fault !== null) void record(fault, `${name}: ${line?.text ?? ""}`);
  };
  /** How many times in a row each process failed to begin. */
  const inVain = new Map<string, number>();
  let giveUp: (why: Error) => void = () => undefined;
  const stuck = new Promise<never>((_, reject) => (giveUp = reject));
  stuck.catch(() => undefined);
  const crew = createCrew<Job>({
    ...{ program, args: [folder], clock, signal: insisted.signal, onPath },
    // A restarted service must listen on its previous port.
    task: (_, job, port) => ({ ...job, ...(port === null ? {} : { port }) }),
    onDeath(name, pid, how, unready) {
      say("error", name, `pid ${pid ?? "-"} died: ${how}`);
      const times = unready === null ? 0 : (inVain.get(name) ?? 0) + 1;
      inVain.set(name, times);
      if (times >= mostInVain) giveUp(new Error(`${name} cannot be kept running: ${unready}`));
    },
  });
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
    ...{ show, watch, crew, say, stuck },
    ending: { insists: () => insisted.signal.aborted, insisted: aborted(insisted.signal) },
    async start() {
      const { naive, relays } = options;
      const names = Array.from({ length: naive ? 0 : relays }, (_, i) => `relay-${i + 1}`);
      const start = (job: Job): Promise<number | null> => crew.start(job.name, job);
      const orders = start({ role: "orders", name: "orders", folder, naive, port: options.port });
      const others = [
        ...names.map((name) => start({ role: "relay", name, folder })),
        ...subscriberNames.map((name) => start({ role: "subscriber", name, folder, naive })),
      ];
      const [port] = await Promise.all([orders, ...others]).catch((error: unknown) => {
        throw insisted.signal.aborted ? stoppedAtOnce() : error;
      });
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
        await Promise.race([over, faults.then(() => over), stuck]);
      } finally {
        done.abort();
        done.release();
        await faults;
      }
    },
    async [Symbol.asyncDispose]() {
      await crew[Symbol.asyncDispose]();
      process.off("exit", killAll);
      await watch[Symbol.asyncDispose]();
      await show.close();
      await Promise.all(noting);
    },
  };
}

/** Ends the load first, then the order service, then the other processes once everything is delivered. */
async function drain(load: OrderLoad, crew: Crew<Job>, eye: Eye, say: Say): Promise<void> {
  await load.stop();
  const end = async (name: string): Promise<void> => {
    if (!(await crew.drain(name, drainMs))) say("error", name, `did not end within ${drainMs} ms, and was killed`);
  };
  await end("orders");
  const deadline = clock.monotonic() + deliverMs;
  // If a look fails, such as on a locked file, the next one makes up for it.
  while (!(await eye.delivered().catch(() => false)) && clock.monotonic() < deadline) await clock.sleep(100);
  await Promise.all(crew.all.map(({ name }) => end(name)));
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => onAbort(signal, resolve));
}

/** The summary for people, then for programs, then the exit code. */
async function conclude({ out, screen }: Audience, options: ShopOptions, folder: string): Promise<void> {
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
