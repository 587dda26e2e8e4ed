import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import type { Delivery, Source, Subscription } from "../../src/contracts/source.ts";
import { fromAttributes } from "../../src/core/cloudevents.ts";
import { WaybillError } from "../../src/core/errors.ts";
import type { Random } from "../../src/core/random.ts";
import { createRoom } from "../../src/core/room.ts";
import { follow, orAborted, type Follower } from "../../src/core/time.ts";
import { createWake } from "../../src/core/wake.ts";
import type { Broker, Reading } from "./broker.ts";
import type { Process, Scheduler } from "./scheduler.ts";

/** A process's link to the broker. */
export interface Client extends Sink, Source {
  readonly can: { readonly maxBytes: number; readonly assign: boolean; readonly run?: number };
}

const away = (sent: boolean): WaybillError =>
  new WaybillError(sent ? "PUBLISH_UNKNOWN" : "DESTINATION_UNAVAILABLE", sent ? "the link to the broker was lost" : "the broker is away");
/** How long a broker keeps a request for messages when there are none. */
const longPollMs = 1_000;

export function openClient(scheduler: Scheduler, random: Random, broker: Broker, process: Process): Client {
  const closing = new AbortController();
  const { server, profile } = broker;
  const closed = (): WaybillError => new WaybillError("STOPPED", "the link to the broker has been closed");
  return {
    name: "simulated",
    can: { maxBytes: profile.maxBytes, assign: profile.assign !== "none", ...(profile.run === undefined ? {} : { run: profile.run }) },
    async connect(signal) {
      if (closing.signal.aborted || signal.aborted) throw closed();
      await orAborted(
        server.call(process, () => undefined, away),
        signal,
        () => undefined,
      );
    },
    publish: (batch, signal) => publish(scheduler, random, broker, process, batch, signal, closing.signal),
    async probe(topic, signal) {
      if (closing.signal.aborted) throw closed();
      await server.call(process, () => undefined, away);
      const why = broker.absent(topic);
      if (why !== null || signal.aborted) throw why ?? closed();
    },
    receive(subscription, signal) {
      return {
        [Symbol.asyncIterator]() {
          const ending = follow(signal, closing.signal);
          const deliveries = iterate(scheduler, broker, process, subscription, ending);
          return {
            next: () => deliveries.next(),
            return() {
              ending.abort();
              ending.release();
              return deliveries.return(undefined);
            },
          };
        },
      };
    },
    async [Symbol.asyncDispose]() {
      closing.abort();
    },
  };
}

/** The server takes one message after the other; the link may break in between, and acks get lost one way or another. */
async function publish(
  scheduler: Scheduler,
  random: Random,
  broker: Broker,
  process: Process,
  batch: readonly Outgoing[],
  signal: AbortSignal,
  closing: AbortSignal,
): Promise<readonly PublishResult[]> {
  const { server, moods, profile } = broker;
  const all = (result: (message: Outgoing) => PublishResult): readonly PublishResult[] => batch.map(result);
  const refused = (error: Error): PublishResult => ({ status: "refused", blame: "destination", retryable: true, error });
  if (batch.length === 0) return [];
  if (closing.aborted || signal.aborted) return all(() => refused(new WaybillError("STOPPED", "called off before it began")));
  let gaveUpAt: number | null = null;
  const results: PublishResult[] = [];
  const execute = async (): Promise<readonly PublishResult[]> => {
    const cutAt = moods.cut > 0 && random.next() < moods.cut ? Math.floor(random.next() * (batch.length + 1)) : Infinity;
    const stopped = new Set<string>();
    for (const [index, message] of batch.entries()) {
      if (index >= cutAt || server.conditions.down > 0) throw away(true);
      const result = broker.accept(message, stopped, () => random.next());
      results.push(result);
      // Whoever gave up sends it again, and makes a copy.
      if (result.status === "stored" && gaveUpAt !== null) broker.unheard(message, gaveUpAt);
      if (index % 8 === 7) await new Promise<void>((resolve) => scheduler.after(random.next(), resolve));
    }
    return results;
  };
  const lost = (error: Error): readonly PublishResult[] => {
    if (gaveUpAt !== null) return [];
    const now = (gaveUpAt = scheduler.now);
    results.forEach((result, index) => result.status === "stored" && broker.unheard(batch[index]!, now));
    return all(() => ({ status: "unknown", error }));
  };
  let sent = true;
  const answered = server
    .call(process, execute, (maybe) => {
      sent = maybe;
      return away(maybe);
    })
    .catch((error: Error) => (sent || !profile.knowsWhenDown ? lost(error) : all(() => refused(error))));
  const ended = follow(signal, closing);
  try {
    return await orAborted(answered, ended.signal, () => lost(away(true)));
  } finally {
    ended.release();
  }
}

async function* iterate(
  scheduler: Scheduler,
  broker: Broker,
  process: Process,
  { consumer, topics, ...bounds }: Subscription,
  { signal, release }: Follower,
): AsyncGenerator<Delivery, undefined> {
  const { server } = broker;
  const room = createRoom(bounds);
  const wake = createWake();
  const never = new Promise<never>(() => undefined);
  const aborted = orAborted<"aborted">(never, signal, () => "aborted");
  let reading: Reading | undefined;
  let left = false;
  const close = (): void => {
    if (reading !== undefined) broker.close(reading);
  };
  const open = (): Reading => {
    reading = broker.open(consumer, topics);
    // The link ended while the request was on its way.
    if (left) close();
    return reading;
  };
  // A broker notices after a while that a reader has died; what is closed in an orderly way it hears of at once.
  process.onCrash(() => void scheduler.after(broker.profile.noticeMs, close));
  process.onPause((ms) => {
    if (broker.profile.assign !== "none" && ms > broker.profile.noticeMs) scheduler.after(broker.profile.noticeMs, close);
  });
  try {
    if (signal.aborted) return;
    const opened = await Promise.race([server.call(process, open, away), aborted]);
    if (opened === "aborted") return;
    while (!signal.aborted) {
      const limit = Math.min(room.left, 20);
      if (limit <= 0) {
        await wake.wait(process.clock, longPollMs, signal);
        continue;
      }
      const messages = await Promise.race([server.call(process, () => fetch(scheduler, broker, opened, limit), away), aborted]);
      if (messages === "aborted") return;
      for (const message of messages) {
        const size = message.data.byteLength;
        while (!room.fits(size) && !signal.aborted) await wake.wait(process.clock, longPollMs, signal);
        if (signal.aborted) return;
        const taken = room.take(size);
        yield {
          topic: message.topic,
          envelope: fromAttributes(message.attributes, message.headers, message.data.slice())!,
          async ack() {
            await server.call(process, () => broker.ack(opened, message), away);
            taken.ack();
            wake.notify();
          },
          aside() {
            taken.aside();
            wake.notify();
          },
        };
      }
    }
  } finally {
    release();
    left = true;
    if (process.alive) close();
  }
}

/** Messages for a reading, as soon as there are any; none after a while, and an error when the broker has ended the reading. */
async function fetch(scheduler: Scheduler, broker: Broker, reading: Reading, limit: number): Promise<ReturnType<Broker["next"]>> {
  const ended = (): void => {
    if (!reading.open) throw new WaybillError("DESTINATION_UNAVAILABLE", "the broker has taken this reader for dead");
  };
  ended();
  const found = broker.next(reading, limit);
  if (found.length > 0) return found;
  await new Promise<void>((resolve) => {
    const cancel = scheduler.after(longPollMs, resolve);
    reading.waiting.add(() => {
      cancel();
      resolve();
    });
  });
  ended();
  return broker.next(reading, limit);
}
