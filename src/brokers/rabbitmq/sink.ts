import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { runsOf } from "../../core/runs.ts";
import { orAborted } from "../../core/signal.ts";
import type { Channel, Connection, Wire } from "./driver.ts";
import { explain, type Links } from "./link.ts";
import { routes, type Management } from "./management.ts";
import { bytesOf, wireOf } from "./message.ts";
import { checkTopic } from "./names.ts";
import { openPublisher, type Fate, type Publisher } from "./publisher.ts";
import { blockedBy, resultOf, skipped, stored, unavailable, unbound, unfit, unknown } from "./result.ts";
import { declareExchange, onChannel } from "./topology.ts";

export interface SinkOptions {
  readonly links: Links;
  readonly exchange: string;
  readonly provision: boolean;
  readonly maxBytes: number;
  readonly management: Management | null;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** A message as it will be sent, or why it cannot be. */
type Encoded = { readonly message: Outgoing } & (
  { readonly wire: Wire; readonly bytes: number; readonly refusal: null } | { readonly wire: null; readonly refusal: PublishResult }
);

/** What is sent before its answers are waited for: the client keeps it in memory, and so does a server that cannot write it yet. */
const flightBytes = 2 * 1024 * 1024;
/** A connection has 2047 by the server's default. */
const maxPublishers = 1_000;

/**
 * Flight after flight: the next message of every aggregate, none of them before the one before it is stored. A channel goes on past a
 * message that was refused, so that two of one aggregate in one flight could be reordered.
 */
export function createSink({
  links,
  exchange,
  provision,
  maxBytes,
  management,
  timeoutMs,
  clock,
}: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const { shown } = links;
  const publishers = new WeakMap<Connection, Map<string, Promise<Publisher>>>();

  const encode = (message: Outgoing): Encoded => {
    try {
      checkTopic(message.topic, "ROUTE_FAILED");
      const wire = wireOf(message);
      const bytes = bytesOf(wire);
      if (bytes <= maxBytes) return { message, wire, bytes, refusal: null };
      const why = `event ${message.envelope.id} takes ${bytes} bytes with its headers, more than maxBytes, ${maxBytes}`;
      return { message, wire: null, refusal: unfit(new WaybillError("MESSAGE_TOO_LARGE", why)) };
    } catch (error) {
      return { message, wire: null, refusal: unfit(asError(error)) };
    }
  };

  const calledOff = new WaybillError("DESTINATION_UNAVAILABLE", `the publish was called off before ${shown} answered`);
  const unanswered = unknown(calledOff);

  /** The connection, or why there is none to send on. */
  const open = async (signal: AbortSignal): Promise<Connection | PublishResult> => {
    if (signal.aborted) return unavailable(calledOff);
    const opened = await links.publishing.open(signal).catch((error: unknown) => unavailable(signal.aborted ? calledOff : asError(error)));
    if (signal.aborted) return unavailable(calledOff);
    return "status" in opened || opened.blocked === null ? opened : unavailable(blockedBy(shown, opened.blocked));
  };

  const ready = (connection: Connection, channel: Channel): Promise<void> =>
    provision ? declareExchange(connection, channel, exchange) : channel.checkExchange(exchange);

  const publisherOf = (connection: Connection, topic: string): Promise<Publisher> => {
    let known = publishers.get(connection);
    if (known === undefined) publishers.set(connection, (known = new Map<string, Promise<Publisher>>()));
    const there = known.get(topic);
    if (there !== undefined) {
      // The one that was used last is the last to go.
      known.delete(topic);
      known.set(topic, there);
      return there;
    }
    void dismiss(known);
    const opened = openPublisher(connection, exchange, (channel) => ready(connection, channel));
    const forget = (): void => {
      if (known.get(topic) === opened) known.delete(topic);
    };
    known.set(topic, opened);
    opened.then(({ ended }) => {
      if (ended.aborted) forget();
      else ended.addEventListener("abort", forget, { once: true });
    }, forget);
    return opened;
  };

  /**
   * A slow server is not a silent one, nor is one that blocks: as long as confirmations come, however late, the channel is kept. One that is
   * silent may be so for its topic alone, as when a queue lacks its leader; a server that does not answer at all loses its connection.
   */
  const watch = async (connection: Connection, publisher: Publisher, landed: AbortSignal): Promise<void> => {
    for (let last = -1; last !== publisher.heard || connection.blocked !== null;) {
      last = publisher.heard;
      await clock.sleep(timeoutMs, landed);
      if (landed.aborted) return;
    }
    await onChannel(connection, (channel) => channel.checkExchange(exchange)).catch(() => undefined);
    publisher.end(new WaybillError("DESTINATION_UNAVAILABLE", `${shown} confirmed nothing within ${timeoutMs} ms`));
  };

  const fly = async (flight: readonly (Encoded & { readonly wire: Wire })[], signal: AbortSignal): Promise<readonly PublishResult[]> => {
    const connection = await open(signal);
    if ("status" in connection) return flight.map(() => connection);
    const channels = new Map<string, Publisher | PublishResult>();
    const topics = [...new Set(flight.map(({ message }) => message.topic))];
    const opening = topics.map(async (topic) =>
      channels.set(topic, await publisherOf(connection, topic).catch((error: unknown) => unavailable(explain(error, shown)))),
    );
    await orAborted(Promise.all(opening), signal, () => []);
    if (signal.aborted) return flight.map(() => unavailable(calledOff));

    const results: PublishResult[] = [];
    const under = new Map<Publisher, Promise<void>[]>();
    flight.forEach(({ message, wire }, i) => {
      const channel = channels.get(message.topic)!;
      if ("status" in channel) return void (results[i] = channel);
      results[i] = unanswered;
      const answered = send(channel, wire).then((fate) => {
        results[i] = "is" in fate ? resultOf(fate, message, shown, exchange) : fate;
      });
      const answers = under.get(channel);
      if (answers === undefined) under.set(channel, [answered]);
      else answers.push(answered);
    });
    const all = [...under].map(async ([channel, answers]) => {
      const landed = new AbortController();
      void watch(connection, channel, landed.signal);
      await Promise.all(answers).finally(() => landed.abort());
    });
    await orAborted(Promise.all(all), signal, () => []);
    const { blocked } = connection;
    // What is answered later changes nothing in what is said now.
    return results.map((result) => (result.status === "unknown" && blocked !== null ? unknown(blockedBy(shown, blocked)) : result));
  };

  const send = async (channel: Publisher, wire: Wire): Promise<Fate | PublishResult> => {
    try {
      return await channel.send(wire);
    } catch (error) {
      // What the client cannot write, it refuses with one of these. Anything else says that the channel has ended.
      const cannot = error instanceof TypeError || error instanceof RangeError;
      return cannot ? unfit(error) : unavailable(explain(error, shown));
    }
  };

  return {
    async publish(messages, signal) {
      const batch = messages.map(encode);
      const results = batch.map(() => skipped);
      // The next one last.
      let runs = runsOf(messages.map(({ envelope }) => envelope)).map((run) => run.reverse());
      while (runs.length > 0) {
        const flight: { readonly run: number[]; readonly at: number; readonly one: Encoded & { readonly wire: Wire } }[] = [];
        let bytes = 0;
        for (const run of runs) {
          const at = run.at(-1)!;
          const one = batch[at]!;
          if (one.refusal !== null) {
            results[at] = one.refusal;
            run.length = 0;
          } else if (flight.length === 0 || bytes + one.bytes <= flightBytes) {
            bytes += one.bytes;
            flight.push({ run, at, one });
          }
        }
        const sent = flight.map(({ one }) => one);
        const flown = sent.length === 0 ? [] : await fly(sent, signal);
        flight.forEach(({ run, at }, i) => {
          results[at] = flown[i]!;
          if (flown[i] === stored) run.pop();
          else run.length = 0;
        });
        runs = runs.filter((run) => run.length > 0);
      }
      return results;
    },

    async probe(topic, signal) {
      checkTopic(topic, "ROUTE_FAILED");
      const connection = await links.publishing.open(signal);
      // A connection that the server has blocked answers nothing.
      if (connection.blocked !== null) throw blockedBy(shown, connection.blocked);
      const looked = onChannel(connection, (channel) => ready(connection, channel)).then(() => management?.bindings(exchange, signal));
      const bindings = await orAborted(
        looked.catch((error: unknown) => {
          throw explain(error, shown);
        }),
        signal,
        () => {
          throw new WaybillError("DESTINATION_UNAVAILABLE", `the probe was called off before ${shown} answered`);
        },
      );
      if (bindings?.some(({ key }) => routes(key, topic)) === false) throw unbound(shown, exchange, topic, "as the management plugin says");
    },
  };
}

/** Makes room for one more channel, where there are too many: one that has nothing under way. */
async function dismiss(known: Map<string, Promise<Publisher>>): Promise<void> {
  if (known.size < maxPublishers) return;
  for (const [topic, opened] of known) {
    const publisher = await opened.catch(() => null);
    if (publisher?.pending !== 0) continue;
    known.delete(topic);
    return publisher.end(new WaybillError("DESTINATION_UNAVAILABLE", "the channel made room for that of another topic"));
  }
}
