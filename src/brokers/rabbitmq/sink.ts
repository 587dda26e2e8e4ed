import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Clock } from "../../core/clock.ts";
import { asError } from "../../core/errors.ts";
import { orAborted } from "../../core/time.ts";
import { byTopic, inFlights, type TopicPart } from "../kit/flights.ts";
import { whenOver } from "../kit/link.ts";
import { outage } from "../kit/outage.ts";
import { unavailable, unfit, unknown } from "../kit/results.ts";
import { createSilence, type Silence } from "../kit/silence.ts";
import type { Channel, Connection } from "./driver.ts";
import type { Links } from "./link.ts";
import { routes, type Management } from "./management.ts";
import { checkTopic } from "./names.ts";
import { openPublisher, type Publisher } from "./publisher.ts";
import { blockedBy, explainSend, resultOf, unbound } from "./result.ts";
import { declareExchange, onChannel } from "./topology.ts";

interface SinkOptions {
  readonly links: Links;
  readonly exchange: string;
  readonly provision: boolean;
  readonly maxBytes: number;
  readonly management: Management | null;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** By the server's default, a connection has at most 2047 channels. */
const maxPublishers = 1_000;

const check = (topic: string): void => checkTopic(topic, "ROUTE_FAILED");

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
  const silences = new WeakMap<Publisher, Silence>();

  const calledOff = outage(`the publish was called off before ${shown} answered`);
  const unanswered = unknown(calledOff);
  const unsent = unavailable(calledOff);

  /** The connection, or why there is none to send on. */
  const open = async (signal: AbortSignal): Promise<Connection | PublishResult> => {
    if (signal.aborted) return unsent;
    const opened = await links.publishing.open(signal).catch((error: unknown) => unavailable(signal.aborted ? calledOff : asError(error)));
    if (signal.aborted) return unsent;
    return "status" in opened || opened.blocked === null ? opened : unavailable(blockedBy(shown, opened.blocked));
  };

  const ready = (connection: Connection, channel: Channel): Promise<void> =>
    provision ? declareExchange(connection, channel, exchange) : channel.checkExchange(exchange);

  const publisherOf = (connection: Connection, topic: string): Promise<Publisher> => {
    let known = publishers.get(connection);
    if (known === undefined) publishers.set(connection, (known = new Map<string, Promise<Publisher>>()));
    const there = known.get(topic);
    if (there !== undefined) {
      // The most recently used channel is the last to be closed.
      known.delete(topic);
      known.set(topic, there);
      return there;
    }
    void dismiss(known);
    const opened = openPublisher(connection, { exchange, topic, maxBytes, ready: (channel) => ready(connection, channel) });
    const forget = (): void => {
      if (known.get(topic) === opened) known.delete(topic);
    };
    known.set(topic, opened);
    whenOver(opened, forget);
    return opened;
  };

  /**
   * A channel may be silent because of its topic alone, as when a queue lacks its leader. A server that does not answer on another channel
   * either loses its connection.
   */
  const silenceOf = (connection: Connection, publisher: Publisher): Silence => {
    let known = silences.get(publisher);
    if (known !== undefined) return known;
    const silent = async (ms: number): Promise<void> => {
      await onChannel(connection, (channel) => channel.checkExchange(exchange)).catch(() => undefined);
      publisher.end(outage(`${shown} confirmed nothing within ${ms} ms`));
    };
    const heard = (): number => (connection.blocked === null ? publisher.heard : NaN);
    known = createSilence({ clock, ms: timeoutMs, ended: publisher.ended, heard, silent: (ms) => void silent(ms) });
    silences.set(publisher, known);
    return known;
  };

  /**
   * While a quorum queue chooses a leader, RabbitMQ refuses messages, and a channel whose first message it refused may refuse all others too,
   * until the old leader is back. Another channel does not. This one ends when its last message has an answer.
   */
  const retired = new WeakSet<Publisher>();
  const retire = (connection: Connection, topic: string, publisher: Publisher): void => {
    if (!retired.has(publisher)) publishers.get(connection)?.delete(topic);
    retired.add(publisher);
  };

  /** Sends the messages of a flight that go to one topic. */
  const sendTo = async (connection: Connection, { topic, places, messages }: TopicPart, results: PublishResult[], signal: AbortSignal) => {
    const say = (result: PublishResult): void => places.forEach((at) => void (results[at] = result));
    const publisher = await publisherOf(connection, topic).catch(asError);
    if (signal.aborted) return;
    if (publisher instanceof Error) return say(unavailable(explainSend(publisher, shown, topic)));
    say(unanswered);
    const landed = silenceOf(connection, publisher).begin();
    await publisher.fly(messages, (fate, i) => {
      if (fate.is === "nacked") retire(connection, topic, publisher);
      results[places[i]!] = resultOf(fate, messages[i]!, shown, exchange);
    });
    landed();
    if (retired.has(publisher) && publisher.pending === 0) publisher.end(outage("the channel was replaced after a refusal"));
  };

  const fly = async (flight: readonly Outgoing[], signal: AbortSignal): Promise<readonly PublishResult[]> => {
    const connection = await open(signal);
    const results = flight.map(() => ("status" in connection ? connection : unsent));
    const parts = byTopic(flight, check, (at, error) => (results[at] = unfit(error)));
    if ("status" in connection) return results;
    const sending = parts.map((part) => sendTo(connection, part, results, signal));
    await orAborted(Promise.all(sending), signal, () => []);
    const { blocked } = connection;
    // A copy: answers that come later must not change these results.
    return results.map((result) => (result.status === "unknown" && blocked !== null ? unknown(blockedBy(shown, blocked)) : result));
  };

  return {
    publish: (messages, signal) => inFlights(messages, signal, (flight) => fly(flight, signal)),

    async probe(topic, signal) {
      check(topic);
      const connection = await links.publishing.open(signal);
      // The server does not answer on a connection that it has blocked.
      if (connection.blocked !== null) throw blockedBy(shown, connection.blocked);
      // Once the broker has answered, the plugin can say that a queue is missing, and nothing else: its node may be away while others publish.
      let answered = false;
      const looked = onChannel(connection, (channel) => ready(connection, channel)).then(() => {
        answered = true;
        return management?.bindings(exchange, signal).catch(() => undefined);
      });
      const bindings = await orAborted(
        looked.catch((error: unknown) => {
          throw explainSend(error, shown, topic);
        }),
        signal,
        () => {
          if (answered) return undefined;
          throw outage(`the probe was called off before ${shown} answered`);
        },
      );
      if (bindings?.some(({ key }) => routes(key, topic)) === false) throw unbound(shown, exchange, topic, "as the management plugin says");
    },
  };
}

/** Makes room for one more channel when there are too many: ends the least recently used one that has no message pending. */
async function dismiss(known: Map<string, Promise<Publisher>>): Promise<void> {
  if (known.size < maxPublishers) return;
  for (const [topic, opened] of known) {
    const publisher = await opened.catch(() => null);
    if (publisher?.pending !== 0) continue;
    known.delete(topic);
    return publisher.end(outage("the channel made room for that of another topic"));
  }
}
