import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { asError } from "../../core/errors.ts";
import { runsOf } from "../../core/runs.ts";
import { orAborted } from "../../core/time.ts";
import { outage } from "../kit/outage.ts";
import { skipped, tooLarge, unavailable, unfit, unknown } from "../kit/results.ts";
import { asking } from "./api.ts";
import type { Connection } from "./driver.ts";
import { flightsOf } from "./flights.ts";
import type { Link } from "./link.ts";
import { headersOf, sizeOf, type Headers } from "./message.ts";
import { checkSubject } from "./names.ts";
import { resultOf } from "./result.ts";
import { streamFor } from "./streams.ts";

interface SinkOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly replicas: number;
}

export function createSink({ link, provision, replicas }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  /** Which stream has a topic; looked up once for each connection, and again after a refusal. */
  const streams = new WeakMap<Connection, Map<string, string>>();

  const look = (topic: string, signal: AbortSignal): Promise<string> =>
    asking(link, signal, async (api) => (await streamFor(api, topic, provision ? replicas : null)).name);
  /** `looking` is one publish's own: a look ends with the signal of whoever began it. */
  const streamOf = (connection: Connection, topic: string, signal: AbortSignal, looking: Map<string, Promise<string>>): Promise<string> => {
    let known = streams.get(connection);
    if (known === undefined) streams.set(connection, (known = new Map<string, string>()));
    const there = known.get(topic);
    if (there !== undefined) return Promise.resolve(there);
    let found = looking.get(topic);
    if (found === undefined) {
      looking.set(topic, (found = look(topic, signal)));
      found
        .then(
          (stream) => known.set(topic, stream),
          () => undefined,
        )
        .finally(() => looking.delete(topic));
    }
    return found;
  };

  /** What becomes of a message. `reached` is told how far it has come. */
  const send = async (
    connection: Connection,
    message: Outgoing,
    signal: AbortSignal,
    looking: Map<string, Promise<string>>,
    reached: (step: "looking" | "sent") => void,
  ): Promise<PublishResult> => {
    const { topic, envelope } = message;
    let stream: string;
    let headers: Headers;
    try {
      checkSubject(topic, "ROUTE_FAILED");
      headers = headersOf(message);
    } catch (error) {
      return unfit(asError(error));
    }
    reached("looking");
    try {
      stream = await streamOf(connection, topic, signal, looking);
    } catch (error) {
      return unavailable(asError(error));
    }
    if (signal.aborted) return skipped;
    headers = [["Nats-Expected-Stream", stream], ...headers];
    const bytes = sizeOf(headers, envelope.data);
    if (bytes > connection.maxBytes)
      return tooLarge(envelope.id, `takes ${bytes} bytes with its headers, and the server takes ${connection.maxBytes}`);
    reached("sent");
    const answer = await connection.request({ subject: topic, data: envelope.data, headers });
    const result = resultOf(answer, message, stream, link.place);
    if (result.status === "refused") streams.get(connection)?.delete(topic);
    return result;
  };

  return {
    async publish(batch, signal) {
      const results = batch.map(() => skipped);
      if (batch.length === 0) return results;
      const runs = runsOf(batch.map(({ envelope }) => envelope));
      const looking = new Map<string, Promise<string>>();
      /** What is to be said of a message when the publish is called off. */
      const late = {
        looking: unavailable(outage(`${link.place} did not say in time which stream has the topic`)),
        sent: unknown(outage(`${link.place} did not answer before the publish was called off`)),
      };
      const sendRun = async (connection: Connection, run: readonly number[]): Promise<void> => {
        for (const index of run) {
          if (signal.aborted) return;
          const result = await send(connection, batch[index]!, signal, looking, (step) => (results[index] = late[step]));
          results[index] = result;
          if (result.status !== "stored") return;
        }
      };
      const sendAll = async (connection: Connection): Promise<void> => {
        for (const flight of flightsOf(batch, runs)) await Promise.all(flight.map((run) => sendRun(connection, run)));
      };
      try {
        const connection = await link.open(signal);
        await orAborted(sendAll(connection), signal, () => undefined);
      } catch (error) {
        for (const [first] of runs) results[first!] = signal.aborted ? late.looking : unavailable(asError(error));
      }
      // What is answered later changes nothing in what is said now.
      return [...results];
    },

    async probe(topic, signal) {
      checkSubject(topic, "ROUTE_FAILED");
      await look(topic, signal);
    },
  };
}
