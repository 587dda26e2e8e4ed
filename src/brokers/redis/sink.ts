import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { runsOf } from "../../core/runs.ts";
import { orAborted } from "../../core/signal.ts";
import { RedisRefusal, type Command, type Connection, type Reply } from "./driver.ts";
import { absent, explain, type Link } from "./link.ts";
import { bytesIn, toFields } from "./message.ts";

export interface SinkOptions {
  readonly link: Link;
  readonly provision: boolean;
  readonly maxBytes: () => number;
  /** How many replicas are waited for, and for how long. */
  readonly copies: { readonly replicas: number; readonly withinMs: number };
}

/** A message as it will be sent, or why it cannot be. */
interface Encoded {
  readonly message: Outgoing;
  readonly command: Command;
  readonly bytes: number;
  readonly refusal: PublishResult | null;
}

const stored: PublishResult = { status: "stored" };
const skipped: PublishResult = { status: "skipped" };
/** What is sent before its answers are waited for: the client and the server each keep it in memory. */
const flightBytes = 2 * 1024 * 1024;

/**
 * Flight after flight: the next message of every aggregate, none of them before the one before it is stored. Redis goes on with a
 * pipeline past a command that it refused, so that two messages of one aggregate in one flight could be reordered.
 */
export function createSink({ link, provision, maxBytes, copies }: SinkOptions): Pick<Sink, "publish" | "probe"> {
  const { shown } = link;
  const make = provision ? [] : ["NOMKSTREAM"];

  const encode = (message: Outgoing): Encoded => {
    try {
      const fields = toFields(message);
      const bytes = bytesIn(fields);
      const most = maxBytes();
      const why = `event ${message.envelope.id} takes ${bytes} bytes with its headers, and ${shown} takes ${most}`;
      const refusal = bytes <= most ? null : unfit(new WaybillError("MESSAGE_TOO_LARGE", why));
      return { message, bytes, refusal, command: ["XADD", message.topic, ...make, "*", ...fields] };
    } catch (error) {
      return { message, bytes: 0, refusal: unfit(asError(error)), command: ["XADD"] };
    }
  };

  const calledOff = new WaybillError("DESTINATION_UNAVAILABLE", `the publish was called off before ${shown} answered`);

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

  const fly = async (flight: readonly Encoded[], signal: AbortSignal): Promise<readonly PublishResult[]> => {
    const connection = await open(signal);
    if ("status" in connection) return flight.map(() => connection);
    const commands = flight.map(({ command }) => command);
    const { answers, landed } = link.send(connection, copies.replicas === 0 ? commands : [...commands, waitCommand(copies)]);
    await orAborted(landed, signal, () => undefined);
    // After a failover the name may lead to another server.
    const replica = answers.find((answer) => answer instanceof RedisRefusal && answer.word === "READONLY");
    if (replica !== undefined) connection.end(explain(replica, shown));
    const lack = copies.replicas === 0 ? null : lacking(answers[commands.length], copies.replicas);
    return flight.map(({ message }, i) => {
      const result = judge(message.topic, answers[i]);
      return result === stored && lack !== null ? unknown(lack) : result;
    });
  };

  return {
    async publish(messages, signal) {
      if (messages.length === 0) return [];
      // The server's own limit is known once there has been a connection.
      const opened = await open(signal);
      const none = "status" in opened ? opened : null;
      const batch = messages.map(encode);
      const results = batch.map(() => skipped);
      // The next one last.
      let runs = runsOf(messages.map(({ envelope }) => envelope)).map((run) => run.reverse());
      while (runs.length > 0) {
        const flight: { readonly run: number[]; readonly at: number }[] = [];
        let bytes = 0;
        for (const run of runs) {
          const at = run.at(-1)!;
          const { refusal, bytes: own } = batch[at]!;
          if (refusal !== null || none !== null) {
            results[at] = refusal ?? none!;
            run.length = 0;
          } else if (flight.length === 0 || bytes + own <= flightBytes) {
            bytes += own;
            flight.push({ run, at });
          }
        }
        const sent = flight.map(({ at }) => batch[at]!);
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
      const connection = await link.open(signal);
      const asked = link.ask(connection, [["TYPE", topic]]).catch((error: unknown) => {
        throw explain(error, shown);
      });
      const [reply] = await orAborted(asked, signal, () => {
        throw new WaybillError("DESTINATION_UNAVAILABLE", `the probe was called off before ${shown} answered`);
      });
      const kind = String(reply);
      if (kind === "stream" || (kind === "none" && provision)) return;
      if (kind === "none") throw absent(shown, topic);
      throw new WaybillError("DESTINATION_UNAVAILABLE", `${shown}: the key ${JSON.stringify(topic)} holds a ${kind}, not a stream`);
    },
  };
}

const waitCommand = ({ replicas, withinMs }: SinkOptions["copies"]): Command => ["WAIT", String(replicas), String(withinMs)];

function lacking(answer: Reply | Error | undefined, wanted: number): Error | null {
  if (answer instanceof Error) return answer;
  return Number(answer ?? 0) >= wanted ? null : new Error(`${Number(answer ?? 0)} of ${wanted} replicas have it`);
}

const unfit = (error: Error): PublishResult => ({ status: "refused", blame: "event", retryable: false, error });

function unavailable(error: Error): PublishResult {
  const named = isWaybillError(error) ? error : new WaybillError("DESTINATION_UNAVAILABLE", error.message, { cause: error });
  return { status: "refused", blame: "destination", retryable: true, error: named };
}

function unknown(cause: Error): PublishResult {
  return { status: "unknown", error: new WaybillError("PUBLISH_UNKNOWN", `it may or may not be stored: ${cause.message}`, { cause }) };
}
