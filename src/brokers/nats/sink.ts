import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { asError } from "../../core/errors.ts";
import { orAborted } from "../../core/time.ts";
import { byTopic, inFlights, type TopicPart } from "../kit/flights.ts";
import { outage } from "../kit/outage.ts";
import { stored, unavailable, unfit, unknown } from "../kit/results.ts";
import { asking } from "./api.ts";
import type { Connection } from "./driver.ts";
import type { Link } from "./link.ts";
import { checkSubject } from "./names.ts";
import { plainAckOf, resultOf } from "./result.ts";
import { streamFor } from "./streams.ts";

interface SinkOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly replicas: number;
}

const check = (topic: string): void => checkSubject(topic, "ROUTE_FAILED");

export function createSink({ link, provision, replicas }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const { place } = link;
  /** Which stream has a topic; looked up once for each connection, and again after a refusal. */
  const streams = new WeakMap<Connection, Map<string, string>>();

  const look = (topic: string, signal: AbortSignal): Promise<string> =>
    asking(link, signal, async (api) => (await streamFor(api, topic, provision ? replicas : null)).name);
  const streamOf = async (connection: Connection, topic: string, signal: AbortSignal): Promise<string> => {
    let known = streams.get(connection);
    if (known === undefined) streams.set(connection, (known = new Map<string, string>()));
    const there = known.get(topic);
    if (there !== undefined) return there;
    const found = await look(topic, signal);
    known.set(topic, found);
    return found;
  };

  /** The results of messages when the publish is called off. */
  const late = {
    looking: unavailable(outage(`${place} did not say in time which stream has the topic`)),
    sent: unknown(outage(`${place} did not answer before the publish was called off`)),
  };

  /** Sends the messages of a flight that go to one topic. */
  const sendTo = async (connection: Connection, { topic, places, messages }: TopicPart, results: PublishResult[], signal: AbortSignal) => {
    const say = (result: PublishResult): void => places.forEach((at) => void (results[at] = result));
    const stream = await streamOf(connection, topic, signal).catch(asError);
    if (signal.aborted) return;
    if (stream instanceof Error) return say(unavailable(stream));
    say(late.sent);
    const isPlainAck = plainAckOf(stream);
    await connection.fly(topic, stream, messages, (answer, i) => {
      const result = isPlainAck(answer) ? stored : resultOf(answer, messages[i]!.envelope.id, { topic, stream, place });
      results[places[i]!] = result;
      if (result.status === "refused" && result.blame === "destination") streams.get(connection)?.delete(topic);
    });
  };

  const fly = async (flight: readonly Outgoing[], signal: AbortSignal): Promise<readonly PublishResult[]> => {
    const results = flight.map(() => late.looking);
    const parts = byTopic(flight, check, (at, error) => (results[at] = unfit(error)));
    try {
      const connection = signal.aborted ? null : await link.open(signal);
      if (connection === null) return results;
      const sending = parts.map((part) => sendTo(connection, part, results, signal));
      await orAborted(Promise.all(sending), signal, () => []);
    } catch (error) {
      if (!signal.aborted) for (const { places } of parts) for (const at of places) results[at] = unavailable(asError(error));
    }
    // A copy: answers that come later must not change these results.
    return [...results];
  };

  return {
    publish: (messages, signal) => inFlights(messages, signal, (flight) => fly(flight, signal)),

    async probe(topic, signal) {
      check(topic);
      await look(topic, signal);
    },
  };
}
