import { connect } from "node:net";
import { connect as connectAmqp } from "amqplib";
import type { RunResult } from "../../../src/proof/run/run.ts";
import { topicsOf, typesOf } from "../../../src/proof/run/ground.ts";
import { aggregatesOf } from "../../../src/proof/run/workload.ts";
import type { Message } from "../../fuzz/messages.ts";
import { publishAmqp } from "../../fuzz/raw-amqp.ts";
import { publishKafka } from "../../fuzz/raw-kafka.ts";
import { publishNats } from "../../fuzz/raw-nats.ts";
import { respAt } from "../../support/resp.ts";
import { insert, made } from "./backlog.ts";
import { logsOf } from "./felt.ts";
import { brokerPairs, storePairs } from "./pairs.ts";
import type { Row, Stage } from "./row.ts";

const load = { aggregates: 8, hot: 0.25, pauseMs: 12, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.002 };
const hotEvents = 1_500;
const perTransaction = 500;
const awayMs = 6;

/** A healthy broker that is far away opens no breaker, and publishes show the distance: it ends with the load. */
function distanceFelt(result: RunResult): string | null {
  if (logsOf(result, "relay").some(({ lines }) => lines.some(({ type }) => type === "destination.opened"))) return "a breaker opened";
  const took = result.history.flatMap((entry) => (entry.op === "publish" && entry.phase === "ok" ? [entry.at - entry.began] : []));
  const far = took.filter((ms) => ms >= 2 * awayMs).length;
  return far >= 100 ? null : `only ${far} of ${took.length} publishes took as long as the way to the broker`;
}

/** What no relay can carry, and what no broker takes: name, aggregate id, headers, payload. */
const hostileRows: readonly (readonly [aggregateId: string, headers: string, payload: string])[] = [
  ["hostile-deep", `{"a":${"[".repeat(3_000)}${"]".repeat(3_000)}}`, "1"],
  ["hostile-line", '{"a":"x\\r\\ny: z"}', "1"],
  [`hostile-${"ä".repeat(1_400)}`, "{}", "1"],
  ["hostile-reserved", '{"waybill-dead-consumer":"x"}', "1"],
  ["hostile-large", "{}", "x".repeat(2_000_000)],
];

const isHostile = ({ aggregate, state }: { readonly aggregate: string; readonly state: string }): boolean =>
  state === "DEAD" && aggregate.includes("hostile-");

/** No event: it has neither an id nor a type. */
const foreign: Message = { attributes: [], headers: [["x", "y"]], data: Buffer.from([0xff, 0x00]), raw: null };

async function publishForeign({ pair, broker, place }: Stage, topic: string): Promise<void> {
  const { port, hostname } = new URL(broker.url.replace(/^\w+:/, "http:"));
  const open = () => connect(Number(port), hostname);
  switch (pair.broker) {
    case "nats":
      return publishNats(open, topic, foreign);
    case "kafka":
      return publishKafka({ host: hostname, port: Number(port) }, topic, foreign);
    case "redis":
      return void (await respAt(broker.url, ["XADD", topic, "*", "x", "y"]));
    case "rabbitmq": {
      const connection = await connectAmqp(broker.url);
      connection.on("error", () => undefined);
      await publishAmqp(connection, topic, foreign, place.run);
      return connection.close();
    }
    case "embedded":
      throw new Error("no pair of this row has it");
  }
}

/** Moves the moments of leases and seats, as a step of the server's clock by an hour the other way does. */
async function step({ ground, pair }: Stage, hours: 1 | -1): Promise<number> {
  const { outbox } = ground.tables;
  const table = (name: string): string => outbox.replace(/outbox(["`]?)$/, `${pair.store === "postgres" ? "waybill_" : ""}${name}$1`);
  const moved = (column: string): string =>
    pair.store === "postgres" ? `${column} = ${column} - interval '${hours} hours'` : `${column} = ${column} - INTERVAL ${hours} HOUR`;
  for (const name of ["relays", "seats"]) await ground.ask(`UPDATE ${table(name)} SET ${moved("expires_at")}, ${moved("renewed_at")}`);
  const [row] = await ground.ask(`SELECT count(*) AS n FROM ${table("relays")}`);
  return Number(row?.["n"]);
}

const noLanesLost = (result: RunResult): string | null =>
  logsOf(result, "relay").some(({ lines }) => lines.some(({ type }) => type === "lanes.lost")) ? "a live relay lost lanes" : null;

export const hostileMatrixRows: readonly Row[] = [
  {
    number: 47,
    title: "a hot aggregate on a broker that is far away, and well",
    injected: `${hotEvents} events of one aggregate wait, and the broker is ${2 * awayMs} ms away; nothing fails, so nothing may come twice`,
    pairs: brokerPairs,
    // What waits in the backlog is late by itself.
    prepare: () => ({ restMs: 120_000, bounds: { latencyMs: 90_000 }, relay: { leaseMs: 10_000, publishTimeoutMs: 5_000 } }),
    async before(stage) {
      const [hot] = aggregatesOf(stage.place, load);
      for (let from = 0; from < hotEvents; from += perTransaction)
        await insert(stage, `hot-${from}`, made(stage, hot!, perTransaction, from));
      for (const direction of ["up", "down"] as const) stage.broker.link!.fault(direction, { latencyMs: awayMs });
    },
    async inject(stage) {
      await stage.rest();
      stage.once();
    },
    felt: distanceFelt,
  },
  {
    number: 48,
    title: "hostile rows",
    injected: "rows by plain SQL that cannot be read, indexed or published, among the writers' events",
    pairs: storePairs,
    kinds: ["taken", "refused"],
    async inject(stage) {
      const [type] = typesOf(stage.place);
      for (let n = 0; stage.on() || n < hostileRows.length; n++) {
        const [id, headers, payload] = hostileRows[n % hostileRows.length]!;
        const values = [type!, `${id}-${n}`, "Hostile", payload, headers];
        const taken = await stage.ground
          .transaction(async ({ ask }) => {
            const columns = "aggregate_type, aggregate_id, event_type, payload, headers";
            await ask(`INSERT INTO ${stage.ground.tables.outbox} (${columns}) VALUES (?, ?, ?, ?, ?)`, values);
          })
          .then(
            () => true,
            () => false,
          );
        stage.once(taken ? "taken" : "refused");
        await stage.pause(400);
      }
    },
    felt: ({ reads }) => (reads.outbox?.some(isHostile) === true ? null : "no hostile row is DEAD"),
  },
  {
    number: 49,
    title: "hostile messages",
    injected: "messages that are no events, published with a raw client among the relays' own",
    pairs: brokerPairs,
    async inject(stage) {
      const topics = topicsOf(stage.place);
      for (let n = 0; stage.on(); n++) {
        await publishForeign(stage, topics[n % topics.length]!);
        stage.once();
        await stage.pause(400);
      }
    },
    felt: (result) =>
      logsOf(result, "subscriber").some(({ lines }) =>
        lines.some(({ type, error = "" }) => type === "subscriber.died" && error.includes("MESSAGE_UNREADABLE")),
      )
        ? null
        : "no subscriber set a message aside",
  },
  {
    number: 50,
    title: "the database server's clock steps",
    injected: "by an hour, forward and back, time after time; live relays keep their lanes, and those of one that is killed are taken",
    pairs: storePairs.filter(({ store }) => store !== "sqlite"),
    kinds: ["forward", "back"],
    async inject(stage) {
      for (let n = 0; stage.on(); n++) {
        const kind = n % 2 === 0 ? "forward" : "back";
        const fault = stage.fault({ fault: `clock ${kind}`, target: stage.pair.store, copies: 0 });
        if ((await step(stage, kind === "forward" ? 1 : -1)) > 0) stage.once(kind);
        if (n === 3) {
          const [victim] = stage.names("relay");
          const killed = stage.fault({ fault: "kill", target: victim!, copies: stage.window });
          stage.workers.kill(victim!);
          killed.ended();
        }
        await stage.pause(1_200);
        fault.ended();
      }
    },
    felt: noLanesLost,
  },
];
