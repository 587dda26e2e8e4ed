import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { asError } from "../../core/errors.ts";
import { checkTopicText } from "../../core/headers.ts";
import { orAborted } from "../../core/time.ts";
import { inFlights } from "../kit/flights.ts";
import { outage } from "../kit/outage.ts";
import { ByteWriter } from "../kit/bytes.ts";
import { stored, tooLarge, unavailable, unfit, unknown } from "../kit/results.ts";
import { isEntryId, textOf } from "./answers.ts";
import type { Connection } from "./driver.ts";
import { absent, explain, plainBytes, wrong, type Link } from "./link.ts";
import { writeFields } from "./message.ts";
import { closeCommand, writeCommand, writeText } from "./protocol.ts";
import { RedisRefusal, type Reply } from "./replies.ts";

interface SinkOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly maxBytes: () => number;
  /** How many replicas are waited for, and for how long. */
  readonly copies: { readonly replicas: number; readonly withinMs: number };
}

export function createSink({ link, provision, maxBytes, copies }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const { shown } = link;
  const calledOff = outage(`the publish was called off before ${shown} answered`);
  const unanswered = unknown(calledOff);

  const judge = (topic: string, answer: Reply | Error): PublishResult => {
    if (answer === null) return unavailable(absent(shown, topic));
    if (!(answer instanceof Error)) return isEntryId(answer) ? stored : unknown(wrong(shown, "XADD"));
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

  const fly = async (flight: readonly Outgoing[], signal: AbortSignal): Promise<readonly PublishResult[]> => {
    // The server's own limit is known once there has been a connection.
    const connection = await open(signal);
    const results = flight.map(() => ("status" in connection ? connection : unanswered));
    const { bytes, places } = commandsOf(flight, (at, result) => (results[at] = result));
    if ("status" in connection || places.length === 0) return results;
    let replica: Error | null = null;
    // An entry counts as stored once so many replicas have it, and not before.
    let lack: Error | null = copies.replicas === 0 ? null : calledOff;
    const read = (answer: Reply | Error, i: number): void => {
      const at = places[i];
      if (at === undefined) return void (lack = lacking(shown, answer, copies.replicas));
      if (answer instanceof RedisRefusal && answer.word === "READONLY") replica = answer;
      results[at] = judge(flight[at]!.topic, answer);
    };
    const count = places.length + (copies.replicas === 0 ? 0 : 1);
    await orAborted(link.fly(connection, { bytes, count, most: plainBytes(count), read }).landed, signal, () => undefined);
    // After a failover the name may lead to another server, so the next publish dials again.
    if (replica !== null) connection.end(explain(replica, shown));
    // A new array: an answer that comes after the abort must not change what is returned now.
    return results.map((result) => (result === stored && lack !== null ? unknown(lack) : result));
  };

  /** One buffer with the commands of all messages that can be sent, and the places of these messages. */
  const commandsOf = (flight: readonly Outgoing[], refuse: (at: number, result: PublishResult) => void) => {
    const places: number[] = [];
    let guess = 0;
    for (const { envelope } of flight) guess += envelope.data.byteLength + fieldsGuess;
    const writer = new ByteWriter(guess);
    const most = maxBytes();
    flight.forEach((message, at) => {
      const before = writer.at;
      try {
        const bytes = writeEntry(writer, message, provision);
        if (bytes <= most) return void places.push(at);
        refuse(at, tooLarge(message.envelope.id, `takes ${bytes} bytes with its headers, and ${shown} takes ${most}`));
      } catch (error) {
        refuse(at, unfit(asError(error)));
      }
      writer.at = before;
    });
    if (copies.replicas > 0) writeCommand(writer, ["WAIT", String(copies.replicas), String(copies.withinMs)]);
    return { bytes: writer.written(), places };
  };

  return {
    publish: (messages, signal) => inFlights(messages, signal, (flight) => fly(flight, signal)),

    async probe(topic, signal) {
      const connection = await link.open(signal);
      const asked = link.ask(connection, [["TYPE", topic]]).catch((error: unknown) => {
        throw explain(error, shown);
      });
      const [reply] = await orAborted(asked, signal, () => {
        throw outage(`the probe was called off before ${shown} answered`);
      });
      const kind = textOf(reply);
      if (kind === null) throw wrong(shown, "TYPE");
      if (kind === "stream" || (kind === "none" && provision)) return;
      if (kind === "none") throw absent(shown, topic);
      throw outage(`${shown}: the key ${JSON.stringify(topic)} holds a ${kind}, not a stream`);
    },
  };
}

/** What an entry takes besides its data, as a first guess. */
const fieldsGuess = 1_024;

/** One XADD. Returns how many bytes the entry's fields have. */
function writeEntry(writer: ByteWriter, message: Outgoing, provision: boolean): number {
  checkTopicText(message.topic);
  const from = writer.at;
  writeText(writer, "XADD");
  writeText(writer, message.topic);
  if (!provision) writeText(writer, "NOMKSTREAM");
  writeText(writer, "*");
  const { count, bytes } = writeFields(writer, message);
  closeCommand(writer, from, count + (provision ? 3 : 4));
  return bytes;
}

function lacking(shown: string, answer: Reply | Error, wanted: number): Error | null {
  if (answer instanceof Error) return answer;
  if (typeof answer !== "number") return wrong(shown, "WAIT");
  return answer >= wanted ? null : new Error(`${answer} of ${wanted} replicas have it`);
}
