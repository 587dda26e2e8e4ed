import { connect, type Socket } from "node:net";
import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import { read, write, type Answer, type Fate, type Message } from "./wire.ts";

const messageOf = ({ topic, envelope: { id, seq, aggregateType, aggregateId, type, contentType, headers, data } }: Outgoing): Message => ({
  ...{ topic, id, type, contentType, headers, seq: Number(seq) },
  ...{ aggregate: `${aggregateType}/${aggregateId}`, data: Buffer.from(data).toString("utf8") },
});

const resultOf = (fate: Fate): PublishResult => {
  if (fate === "stored" || fate === "skipped") return { status: fate };
  const blame = fate === "event" ? "event" : "destination";
  return { status: "refused", blame, retryable: true, error: new Error(`the broker refuses this ${fate}`) };
};

interface Link {
  readonly socket: Socket;
  /** Those that wait for an answer over this link. */
  readonly waiting: Map<number, (answer: Answer | null) => void>;
}

/** Speaks to the broker of the play. */
export function createSink(relay: string, port: number): Sink {
  let link: Link | null = null;
  let asked = 0;

  const open = (): Link => {
    if (link?.socket.writable === true) return link;
    const fresh: Link = { socket: connect(port, "127.0.0.1").setNoDelay(true), waiting: new Map() };
    read<Answer>(fresh.socket, (answer) => fresh.waiting.get(answer.n)?.(answer));
    fresh.socket.on("close", () => {
      for (const settle of fresh.waiting.values()) settle(null);
    });
    write(fresh.socket, { n: 0, hello: relay });
    return (link = fresh);
  };
  /** Null: the link broke, or it was called off. */
  const ask = async (
    what: { readonly publish: readonly Message[] } | { readonly probe: string },
    signal: AbortSignal,
  ): Promise<Answer | null> => {
    const { socket, waiting } = open();
    const n = ++asked;
    const off = new AbortController();
    try {
      return await new Promise<Answer | null>((resolve) => {
        waiting.set(n, resolve);
        signal.addEventListener("abort", () => resolve(null), { signal: off.signal });
        if (signal.aborted || !write(socket, { n, ...what })) resolve(null);
      });
    } finally {
      off.abort();
      waiting.delete(n);
    }
  };

  return {
    name: "play",
    can: { maxBytes: 1_000_000 },
    connect: async () => void open(),
    async publish(batch, signal) {
      const results: PublishResult[] = batch.map(() => ({ status: "skipped" }));
      const topics = new Map<string, number[]>();
      for (const [at, { topic }] of batch.entries()) topics.set(topic, [...(topics.get(topic) ?? []), at]);
      await Promise.all(
        [...topics.values()].map(async (places) => {
          const answer = await ask({ publish: places.map((at) => messageOf(batch[at]!)) }, signal);
          for (const [nth, at] of places.entries()) {
            const fate = answer?.fates?.[nth];
            results[at] = fate === undefined ? { status: "unknown", error: new Error("no answer came") } : resultOf(fate);
          }
        }),
      );
      return results;
    },
    async probe(topic, signal) {
      if ((await ask({ probe: topic }, signal))?.well !== true) throw new Error(`${topic} is not well`);
    },
    async [Symbol.asyncDispose]() {
      link?.socket.destroy();
    },
  };
}
