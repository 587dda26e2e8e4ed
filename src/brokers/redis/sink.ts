import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { asError } from "../../core/errors.ts";
import { orAborted } from "../../core/time.ts";
import { inFlights } from "../kit/flights.ts";
import { outage } from "../kit/outage.ts";
import { encoded, stored, unavailable, unknown } from "../kit/results.ts";
import { RedisRefusal, type RedisCommand, type Connection, type Reply } from "./driver.ts";
import { absent, explain, type Link } from "./link.ts";
import { bytesIn, toFields } from "./message.ts";

interface SinkOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly maxBytes: () => number;
  /** How many replicas are waited for, and for how long. */
  readonly copies: { readonly replicas: number; readonly withinMs: number };
}

/** A message as it will be sent. */
interface Ready {
  readonly topic: string;
  readonly command: RedisCommand;
  readonly bytes: number;
}

export function createSink({ link, provision, maxBytes, copies }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const { shown } = link;
  const make = provision ? [] : ["NOMKSTREAM"];

  const encode = (message: Outgoing): Ready | PublishResult =>
    encoded(message, { of: shown, most: maxBytes() }, () => {
      const fields = toFields(message);
      return { topic: message.topic, bytes: bytesIn(fields), command: ["XADD", message.topic, ...make, "*", ...fields] };
    });

  const calledOff = outage(`the publish was called off before ${shown} answered`);

  const judge = (topic: string, answer: Reply | Error | undefined): PublishResult => {
    if (answer === undefined) return unknown(calledOff);
    if (!(answer instanceof Error)) return answer === null ? unavailable(absent(shown, topic)) : stored;
    // ERR alone does not say whose fault it is. Only a message that gets it again and again while others are stored is to blame, and
    // that is how the relay treats what is unknown.
    const unclear = !(answer instanceof RedisRefusal) || answer.word === "ERR";
    return unclear ? unknown(explain(answer, shown)) : unavailable(explain(answer, shown));
  };

  /** The shared connection, or why there is none. */
  const open = async (signal: AbortSignal): Promise<Connection | PublishResult> => {
    if (signal.aborted) return unavailable(calledOff);
    const opened = await link.open(signal).catch((error: unknown) => unavailable(signal.aborted ? calledOff : asError(error)));
    return signal.aborted ? unavailable(calledOff) : opened;
  };

  const fly = async (flight: readonly Ready[], signal: AbortSignal): Promise<readonly PublishResult[]> => {
    const connection = await open(signal);
    if ("status" in connection) return flight.map(() => connection);
    const commands = flight.map(({ command }) => command);
    const { answers, landed } = link.send(connection, copies.replicas === 0 ? commands : [...commands, waitCommand(copies)]);
    await orAborted(landed, signal, () => undefined);
    // After a failover the name may lead to another server.
    const replica = answers.find((answer) => answer instanceof RedisRefusal && answer.word === "READONLY");
    if (replica !== undefined) connection.end(explain(replica, shown));
    const lack = copies.replicas === 0 ? null : lacking(answers[commands.length], copies.replicas);
    return flight.map(({ topic }, i) => {
      const result = judge(topic, answers[i]);
      return result === stored && lack !== null ? unknown(lack) : result;
    });
  };

  return {
    async publish(messages, signal) {
      if (messages.length === 0) return [];
      // The server's own limit is known once there has been a connection.
      const opened = await open(signal);
      const batch = messages.map((message) => {
        const ready = encode(message);
        return "status" in opened && !("status" in ready) ? opened : ready;
      });
      return inFlights(messages, batch, (flight) => fly(flight, signal));
    },

    async probe(topic, signal) {
      const connection = await link.open(signal);
      const asked = link.ask(connection, [["TYPE", topic]]).catch((error: unknown) => {
        throw explain(error, shown);
      });
      const [reply] = await orAborted(asked, signal, () => {
        throw outage(`the probe was called off before ${shown} answered`);
      });
      const kind = String(reply);
      if (kind === "stream" || (kind === "none" && provision)) return;
      if (kind === "none") throw absent(shown, topic);
      throw outage(`${shown}: the key ${JSON.stringify(topic)} holds a ${kind}, not a stream`);
    },
  };
}

const waitCommand = ({ replicas, withinMs }: SinkOptions["copies"]): RedisCommand => ["WAIT", String(replicas), String(withinMs)];

function lacking(answer: Reply | Error | undefined, wanted: number): Error | null {
  if (answer instanceof Error) return answer;
  return Number(answer ?? 0) >= wanted ? null : new Error(`${Number(answer ?? 0)} of ${wanted} replicas have it`);
}
