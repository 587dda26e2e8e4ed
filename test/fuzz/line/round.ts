import { spawn, type ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { chanceOf } from "../chance.ts";
import type { Report, Target } from "../target.ts";
import { Failed, within } from "../watch.ts";
import { bundled } from "./bundle.ts";
import { damageOf, summaryOf, type Damage, type Harm, type Kind } from "./damage.ts";
import type { LineName } from "./frames.ts";
import { openLines, secret, type Ground, type LinePlace } from "./places.ts";
import { fewest } from "./fewest.ts";
import type { Config, Told } from "./told.ts";
import { damageOfWrong, type WrongAnswer } from "./wrong.ts";

/** Until the process runs: it loads every adapter, also on a machine that has much else to do. */
const startsMs = 120_000;
/** Until everything has flowed, once the line is clean: longer than every timeout and back-off of the path. */
const flowsMs = 30_000;
/** How much the process may grow. A server offers it up to 256 MiB at once. */
const growth = 160 * 1024 * 1024;

interface Child {
  readonly told: readonly Told[];
  /** What must never happen has happened. */
  broken(): string | null;
  /** What users cannot understand, or must not read. */
  badWords(): readonly string[];
  say(word: string): void;
  /** It is ended by its id if it does not end by itself. */
  kill(): void;
}

/** A relay and a subscriber in a process of their own. */
function launch(program: string, config: Config, kind: Kind): Child {
  const child: ChildProcess = spawn(process.execPath, [program, JSON.stringify(config)], { stdio: ["ignore", "pipe", "pipe", "ipc"] });
  const told: Told[] = [];
  let [said, ended, base] = ["", "", 0];
  child.stdout!.on("data", (text: Buffer) => (said += text.toString()));
  child.stderr!.on("data", (text: Buffer) => (said += text.toString()));
  child.on("message", (one) => {
    told.push(one as Told);
    const last = one as Told;
    if (last.type === "ready" && last.what === "process")
      base = Math.max(base, ...told.map((each) => (each.type === "rss" ? each.bytes : 0)));
  });
  child.on("exit", (code, signal) => (ended = `the process ended with ${signal ?? code}`));
  return {
    told,
    broken() {
      if (ended !== "" && !told.some(({ type }) => type === "ended")) return `${ended}: ${said.slice(-600)}`;
      for (const one of told) {
        if (one.type === "uncaught") return `nobody caught ${one.error.slice(0, 900)}`;
        if (one.type === "late") return `${one.what} does not end in time`;
        if (one.type === "rss" && base > 0 && one.bytes - base > growth)
          return `the process grew by ${Math.round((one.bytes - base) / 1024 / 1024)} MiB`;
        if (one.type === "trouble" && kind === "line" && one.where.endsWith(" ended")) return `${one.where}: ${one.error}`;
      }
      return null;
    },
    badWords() {
      const bad = new Map<string, string>();
      for (const one of told) {
        if (one.type !== "trouble") continue;
        const wrong = wrongWords(one.error) ?? (one.ours === false && kind === "line" ? "is no error of Waybill's" : null);
        if (wrong !== null)
          bad.set(`${wrong} ${one.error.replace(/\d+/g, "0")}`, `${one.where}: ${JSON.stringify(one.error.slice(0, 300))} ${wrong}`);
      }
      if (controls.test(said)) bad.set("said", `the process printed ${JSON.stringify(said.slice(0, 300))}`);
      return [...bad.values()];
    },
    say: (word) => void (child.connected && child.send(word)),
    kill: () => void (ended === "" && child.kill("SIGKILL")),
  };
}

const javascripts =
  /is not (a function|iterable|defined)|Cannot (read|use)|call stack|undefined|\bNaN\b|\[object|Invalid (array|typed)|out of (range|bounds)|outside buffer|Unexpected (token|end)|beyond|ERR_/i;

/** Those that a terminal obeys. */
const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/;

function wrongWords(text: string): string | null {
  if (javascripts.test(text)) return "are JavaScript's words";
  if (controls.test(text)) return "has control characters";
  if (text.includes(secret)) return "has the password";
  return text.length > 2_000 ? "is longer than anybody reads" : null;
}

const aggregates = 12;

/** A round that failed, and everything that it did to the answers. */
class Broken extends Failed {
  readonly done: readonly Harm[];

  constructor(message: string, done: readonly Harm[]) {
    super(message);
    this.done = done;
  }
}

/** What is done to the answers of one round. */
interface Plan {
  readonly kind: Kind;
  readonly damage: Damage;
  /** The path begins on a clean line, and the line goes bad then. */
  readonly later: boolean;
  /** Whether an event that was added on the bad line may be without an effect: a server that lies can say that it has one. */
  readonly mayLose: boolean;
  /** Whether the line was bad for long enough. */
  enough(sinceMs: number): boolean;
}

export function lineRound(place: LinePlace, name: LineName, kind: Kind, seed: number, only?: readonly Harm[]): Promise<Report> {
  const chance = chanceOf(seed, `${kind} round`);
  // In half of the rounds the path begins on a clean line, and in the others it has to begin on the bad one.
  const later = chance.is(0.5);
  const lastsMs = 2_500 + chance.below(1_500);
  const damage = damageOf(seed, name, kind, only);
  return play(place, { kind, damage, later, mayLose: kind === "fake", enough: (ms) => ms > lastsMs });
}

/** So many connections are told it: more than a process opens that waits for the first of them for ever. */
const tellings = 6;
const toldMs = 90_000;
/** Of one wrong answer: what the buffers of the sockets take besides. */
const mostTaken = 40 * 1024 * 1024;

/** Every event has its effect once, although the server said this to every connection for a while. */
export function wrongRound(place: LinePlace, answer: WrongAnswer): Promise<Report> {
  const damage = damageOfWrong(answer);
  const enough = (ms: number): boolean => {
    if (damage.most > mostTaken) throw new Failed(`the process took ${Math.round(damage.most / 1024 / 1024)} MiB of the answer`);
    if (damage.told >= tellings && ms > 2_000) return true;
    if (ms > toldMs) throw new Failed(`it was told ${damage.told} times in ${toldMs / 1_000} s: some connection waits for more`);
    return false;
  };
  return play(place, { kind: "fake", damage, later: false, mayLose: false, enough });
}

async function play(place: LinePlace, { kind, damage, later, mayLose, enough }: Plan): Promise<Report> {
  const program = await bundled();
  const ground = await place.create();
  const child = launch(program, ground.config, kind);
  const story = (): string => {
    const done = summaryOf(damage.done);
    const last = child.told.flatMap((one) => (one.type === "trouble" ? [`${one.where}: ${one.error.slice(0, 200)}`] : []));
    return ` [${done || "no damage"}; last troubles: ${last.slice(-3).join(" | ") || "none"}]`;
  };
  let n = 0;
  const add = (aggregate: string): Promise<unknown> =>
    ground.query(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Line', '${aggregate}', 'Damaged', '{"n":${++n}}')`,
    );
  const held = (): void => {
    const why = child.broken();
    if (why !== null) throw new Failed(why + story());
  };
  const until = (ms: number, what: () => string, done: () => Promise<boolean>): Promise<void> =>
    within(
      ms,
      () => what() + story(),
      async () => (held(), done()),
    );
  try {
    damage.on(!later);
    place.proxy.fault("down", { through: damage.through });
    await until(
      startsMs,
      () => "the process does not start",
      async () => child.told.some(({ type }) => type === "ready"),
    );
    if (later) {
      await add("first");
      await until(
        flowsMs,
        () => "the first event is not handled on a clean line",
        async () => (await handled(ground)).length === 1,
      );
      damage.on(true);
    }
    const began = performance.now();
    while (!enough(performance.now() - began)) {
      await add(`a-${n % aggregates}`);
      held();
      await sleep(25);
    }
    damage.on(false);
    if (kind === "fake") place.proxy.reset(); // the address is another server's now
    const before = n;
    for (let after = 0; after < 6; after++) await add(`after-${after}`);
    const missing = async (): Promise<readonly string[]> => {
      const seen = new Set((await handled(ground)).map(({ payload }) => payload));
      return Array.from({ length: n }, (_, at) => `{"n":${at + 1}}`).filter(
        (payload, at) => (!mayLose || at >= before) && !seen.has(payload),
      );
    };
    let left: readonly string[] = [];
    let states = "";
    await until(
      flowsMs,
      () => `${left.length} of ${n} events have no effect on the clean line, such as ${left[0]}${states}`,
      async () => {
        left = await missing();
        if (left.length > 0) states = ` (${await statesOf(ground, left)})`;
        return left.length === 0;
      },
    );
    if (!mayLose) await exactlyOnce(ground, n, story);
    child.say("end");
    await until(
      60_000,
      () => "the process does not end",
      async () => child.told.some(({ type }) => type === "ended"),
    );
    const bad = child.badWords();
    if (bad.length > 0) throw new Failed(bad.join("\n  ") + story());
    return { taken: damage.done.length, refused: 0 };
  } catch (error) {
    throw error instanceof Failed ? new Broken(error.message, [...damage.done]) : error;
  } finally {
    child.kill();
    damage.on(false);
    place.proxy.heal();
    place.proxy.reset();
    await ground.close();
  }
}

const handled = (ground: Ground): Promise<readonly { readonly event_id: string; readonly payload: string }[]> =>
  ground.query("SELECT event_id, payload FROM effects") as never;

/** Where these events are: a row's status says which half of the path they wait in. */
async function statesOf(ground: Ground, payloads: readonly string[]): Promise<string> {
  const rows = (await ground.query("SELECT payload, status FROM outbox")) as readonly Record<"payload" | "status", string>[];
  const counts = new Map<string, number>();
  for (const { payload, status } of rows) if (payloads.includes(payload)) counts.set(status, (counts.get(status) ?? 0) + 1);
  return [...counts].map(([status, many]) => `${status} ${many}`).join(", ");
}

async function exactlyOnce(ground: Ground, added: number, story: () => string): Promise<void> {
  const rows = (await ground.query("SELECT id, payload, status FROM outbox")) as readonly Record<"id" | "payload" | "status", string>[];
  const effects = new Map<string, string[]>();
  for (const { event_id: id, payload } of await handled(ground)) effects.set(id, [...(effects.get(id) ?? []), payload]);
  if (rows.length !== added) throw new Failed(`${added} events were added, and ${rows.length} are there${story()}`);
  for (const { id, payload } of rows) {
    const of = effects.get(id) ?? [];
    if (of.length !== 1 || of[0] !== payload) throw new Failed(`event ${payload} has the effects ${of.join(", ") || "none"}${story()}`);
  }
  if (effects.size !== rows.length) throw new Failed(`${effects.size - rows.length} effects are of no event${story()}`);
}

/** How long it is worth to look for fewer damages. */
const shrinkMs = 300_000;

export async function openLine(name: LineName, kind: Kind): Promise<Target & { wrong(answer: WrongAnswer): Promise<Report> }> {
  const place = await openLines[name]();
  const round: Target["round"] = (seed, only) => lineRound(place, name, kind, seed, only);
  const failing = new Map<number, Broken>();
  return {
    async round(seed, only) {
      try {
        return await round(seed, only);
      } catch (error) {
        if (error instanceof Broken) failing.set(seed, error);
        throw error;
      }
    },
    async shrink(seed) {
      const done = failing.get(seed)?.done ?? [];
      const deadline = performance.now() + shrinkMs;
      const fails = async (harms: readonly Harm[]): Promise<boolean> => {
        if (performance.now() > deadline) return false;
        return round(seed, harms).then(
          () => false,
          (error: unknown) => error instanceof Broken,
        );
      };
      const only = await fewest(done, fails);
      return only === null ? null : { told: only.join(", ") || "no damage at all: the machine may be too busy", only };
    },
    tell: (seed) => `the damage of seed ${seed} to the answers of ${name}: ${summaryOf(failing.get(seed)?.done ?? [])}`,
    wrong: (answer: WrongAnswer) => wrongRound(place, answer),
    [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
  };
}
