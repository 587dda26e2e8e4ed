import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startKafka } from "../../test/servers/kafka.ts";
import { startNats } from "../../test/servers/nats.ts";
import { startRedis } from "../../test/servers/redis.ts";
import type { Figure, Finding } from "../report.ts";

const run = promisify(execFile);
const worker = fileURLToPath(new URL("./worker.mjs", import.meta.url));
const here = fileURLToPath(new URL("../..", import.meta.url));

export interface Ground {
  readonly store: string;
  /** The database server's first process. */
  readonly server: number;
  readonly rounds: number;
  /** Another checkout, built: each round is run there too, by turns. */
  readonly beside: string | null;
}

interface Round {
  readonly perSecond: number;
  readonly ownMicros: number;
  readonly serverMicros: number;
}

interface Side {
  readonly name: string;
  readonly root: string;
  readonly leg: string;
}

const brokers = { kafka: startKafka, nats: startNats, redis: startRedis } as const;
const names: Readonly<Record<keyof typeof brokers, string>> = { kafka: "Kafka", nats: "JetStream", redis: "Redis" };
/** A change that costs more than this much of what it was is seen. */
const most = 1.05;
let schemas = 0;

/** From the outbox to each broker. */
export async function drain(ground: Ground, events: number): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const broker of ["nats", "redis", "kafka"] as const) {
    await using server = await brokers[broker]();
    findings.push(
      await compared(
        `The relay, PostgreSQL to ${names[broker]}, ${events.toLocaleString("en")} events`,
        ground,
        checkouts(ground, "drain"),
        {
          events,
          broker,
          brokerUrl: server.url(),
        },
      ),
    );
  }
  return findings;
}

/** From JetStream through the inbox. */
export async function subscriber(ground: Ground, events: number): Promise<readonly Finding[]> {
  await using server = await brokers.nats();
  const task = { events, broker: "nats", brokerUrl: server.url() };
  const question = `A subscriber, JetStream to PostgreSQL, ${events.toLocaleString("en")} events, one insert each`;
  return [await compared(question, ground, checkouts(ground, "subscriber"), task)];
}

/** Into the outbox, beside a statement that is written by hand. */
export async function add(ground: Ground, events: number): Promise<readonly Finding[]> {
  const question = `outbox.add, ${events.toLocaleString("en")} transactions of ten writers`;
  const sides = [...checkouts(ground, "add"), { name: "by hand", root: here, leg: "byHand" }];
  return [await compared(question, ground, sides, { events })];
}

const checkouts = ({ beside }: Ground, leg: string): readonly Side[] => [
  { name: "here", root: here, leg },
  ...(beside === null ? [] : [{ name: "beside", root: beside, leg }]),
];

async function compared(question: string, ground: Ground, sides: readonly Side[], task: object): Promise<Finding> {
  const rounds = new Map<Side, Round[]>(sides.map((side) => [side, []]));
  for (let round = 0; round < ground.rounds; round++)
    for (const side of round % 2 === 0 ? sides : sides.toReversed()) rounds.get(side)!.push(await oneRound(ground, side, task));
  const middle = ({ perSecond, ownMicros, serverMicros }: Record<keyof Round, Spread>): readonly number[] =>
    [perSecond, ownMicros, serverMicros].map(({ median }) => median);
  const figures: Figure[] = [];
  const notes: string[] = [];
  const cost = new Map<string, number>();
  for (const [{ name }, each] of rounds) {
    const spread = {
      perSecond: spreadOf(each, "perSecond"),
      ownMicros: spreadOf(each, "ownMicros"),
      serverMicros: spreadOf(each, "serverMicros"),
    };
    const [perSecond, own, server] = middle(spread);
    figures.push(
      { what: `${name}: CPU of our process per event`, value: own!, unit: "µs" },
      { what: `${name}: CPU of the database per event`, value: server!, unit: "µs" },
      { what: `${name}: events per second`, value: perSecond!, unit: "/s" },
    );
    notes.push(
      `${name}: ${each.length} rounds, CPU ${text(spread.ownMicros)} and ${text(spread.serverMicros)} µs, ${text(spread.perSecond)} /s`,
    );
    cost.set(name, own! + server!);
  }
  const base = cost.get("beside") ?? cost.get("by hand");
  const bound = cost.has("beside") ? ({ at: "most", ratio: most } as const) : null;
  return { question, figures, ratio: base === undefined ? 1 : cost.get("here")! / base, bound, notes };
}

async function oneRound({ store, server }: Ground, { root, leg }: Side, task: object): Promise<Round> {
  const schema = `leg${++schemas}`;
  const { stdout } = await run(process.execPath, [worker, JSON.stringify({ ...task, root, leg, store, server, schema })], {
    maxBuffer: 1 << 20,
  });
  return JSON.parse(stdout) as Round;
}

interface Spread {
  readonly least: number;
  readonly median: number;
  readonly most: number;
}

function spreadOf(rounds: readonly Round[], of: keyof Round): Spread {
  const sorted = rounds.map((round) => round[of]).sort((a, b) => a - b);
  return { least: sorted[0]!, median: sorted[Math.floor(sorted.length / 2)]!, most: sorted.at(-1)! };
}

const text = ({ least, most: highest }: Spread): string => `${Math.round(least)} to ${Math.round(highest)}`;
