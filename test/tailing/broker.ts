import { createServer, type AddressInfo, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { changedIn, numberOf } from "./genuine.ts";
import type { Arrival } from "./judge.ts";
import { read, write, type Answer, type Ask, type Fate, type Message } from "./wire.ts";

/** How a topic is when it is not well. Deaf: nothing is stored or answered. Mute: stored, and not answered. */
export type Illness = "refusing" | "deaf" | "mute" | "slow";
export const illnesses: readonly Illness[] = ["refusing", "deaf", "mute", "slow"];

export interface Broker extends AsyncDisposable {
  readonly port: number;
  /** Everything that came, in order, since it was taken. */
  readonly arrivals: readonly Came[];
  /** Ids that were stored since the arrivals were taken. */
  readonly ids: ReadonlySet<string>;
  /** Empties the record, and answers it. */
  take(): readonly Came[];
  /** Between a message and its answer. */
  answerAfter(ms: number): void;
  /** Null: it is well. */
  set(topic: string, illness: Illness | null): void;
  /** Breaks every connection. */
  cut(): void;
}

export interface Came extends Arrival {
  readonly aggregate: string;
  readonly seq: number;
}

/** One message of this many is refused at first, once or twice. */
const oneOf = 200;
const slowMs = 150;

/** A broker that remembers every message, in the order in which it came, and which relay sent it. */
export async function createBroker(): Promise<Broker> {
  let arrivals: Came[] = [];
  let ids = new Set<string>();
  const refusals = new Map<string, number>();
  const ill = new Map<string, Illness>();
  const sockets = new Set<Socket>();
  let answerMs = 0;

  const isRefused = (id: string): boolean => {
    const of = numberOf(id, "refused");
    if (of % oneOf !== 0) return false;
    const times = refusals.get(id) ?? 0;
    refusals.set(id, times + 1);
    return times < 1 + ((of / oneOf) % 2);
  };
  const take = (relay: string, messages: readonly Message[]): readonly Fate[] | null => {
    const stopped = new Set<string>();
    const illness = ill.get(messages[0]!.topic);
    if (illness === "deaf") return null;
    return messages.map((message): Fate => {
      const { id, aggregate, seq } = message;
      if (stopped.has(aggregate)) return "skipped";
      const fate = illness === "refusing" ? "topic" : isRefused(id) ? "event" : "stored";
      if (fate !== "stored") stopped.add(aggregate);
      else ids.add(id);
      if (fate === "topic") return fate;
      const changed = changedIn(message);
      arrivals.push({
        ...{ id, aggregate, seq, relay, at: performance.now(), stored: fate === "stored", answered: illness !== "mute" },
        ...(changed === undefined ? {} : { changed }),
      });
      return fate;
    });
  };

  const server = createServer((socket) => {
    socket.setNoDelay(true);
    let relay = "nobody";
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    const answer = (topic: string, what: Answer): void => {
      const waitMs = answerMs + (ill.get(topic) === "slow" ? slowMs : 0);
      if (ill.get(topic) === "mute") return;
      if (waitMs === 0) write(socket, what);
      else setTimeout(() => write(socket, what), waitMs);
    };
    read<Ask>(socket, (ask) => {
      if ("hello" in ask) relay = ask.hello;
      else if ("probe" in ask) {
        const illness = ill.get(ask.probe);
        if (illness !== "deaf") answer(ask.probe, { n: ask.n, well: illness !== "refusing" });
      } else {
        const fates = take(relay, ask.publish);
        if (fates !== null) answer(ask.publish[0]!.topic, { n: ask.n, fates });
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  return {
    port: (server.address() as AddressInfo).port,
    get arrivals() {
      return arrivals;
    },
    get ids() {
      return ids;
    },
    take() {
      const taken = arrivals;
      [arrivals, ids] = [[], new Set()];
      return taken;
    },
    answerAfter(ms) {
      answerMs = ms;
    },
    set(topic, illness) {
      if (illness === null) ill.delete(topic);
      else ill.set(topic, illness);
    },
    cut() {
      for (const socket of sockets) socket.destroy();
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
