import { brokerRound, planOf, shrinkMessages } from "./broker-round.ts";
import { openGrounds } from "./grounds.ts";
import { tellMessage, type BrokerName } from "./messages.ts";
import { lineNames, type LineName } from "./line/frames.ts";
import { openLine } from "./line/round.ts";
import { openPlaces } from "./publishers.ts";
import { tellRow, type Dialect } from "./rows.ts";
import { shrinkRows, storePlanOf, storeRound } from "./store-round.ts";
import type { Target } from "./target.ts";

export const storeNames = ["sqlite", "postgres", "mariadb"] as const satisfies readonly Dialect[];
export const brokerNames = ["embedded", "kafka", "rabbitmq", "nats", "redis"] as const satisfies readonly BrokerName[];

/** What hostile input is written to, and whose answers are damaged (`line`) or made up (`fake`). */
export const targetNames = { store: storeNames, broker: brokerNames, line: lineNames, fake: lineNames } as const;

export function openTargets(kind: keyof typeof targetNames, name: string): Promise<Target> {
  if (kind === "store") return openStore(name as Dialect);
  if (kind === "broker") return openBroker(name as BrokerName);
  return openLine(name as LineName, kind);
}

export async function openStore(name: Dialect): Promise<Target> {
  const grounds = await openGrounds[name]();
  return {
    round: (seed) => storeRound(grounds, storePlanOf(seed, name)),
    async shrink(seed) {
      const told = await shrinkRows(grounds, storePlanOf(seed, name));
      return told === null ? null : { told };
    },
    tell(seed) {
      const { rows, death } = storePlanOf(seed, name);
      return [...(death ? ["a relay dies with them in hand"] : []), ...rows.map(tellRow)].join("\n  ");
    },
    [Symbol.asyncDispose]: () => grounds[Symbol.asyncDispose](),
  };
}

export async function openBroker(name: BrokerName): Promise<Target> {
  const place = await openPlaces[name]();
  return {
    round: (seed) => brokerRound(place, planOf(seed, name)),
    async shrink(seed) {
      const message = await shrinkMessages(place, planOf(seed, name));
      return message === null ? null : { told: tellMessage(message) };
    },
    tell: (seed) => planOf(seed, name).map(tellMessage).join("\n  "),
    [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
  };
}
