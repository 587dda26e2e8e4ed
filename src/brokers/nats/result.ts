import type { PublishResult } from "../../contracts/sink.ts";
import { outage } from "../kit/outage.ts";
import { stored, tooLarge, unavailable, unfit, unknown } from "../kit/results.ts";
import { codes } from "./api.ts";
import type { NatsAnswer } from "./requests.ts";
import { noStream } from "./streams.ts";

/** Where a message was meant to go. `place` is the broker's name in error messages. */
interface Destination {
  readonly topic: string;
  readonly stream: string;
  readonly place: string;
}

/** Turns the answer to a message into a result: by JetStream's error codes, never by their text. */
export function resultOf(answer: NatsAnswer, id: string, to: Destination): PublishResult {
  if (!("is" in answer)) return verdictOf(answer, id, to);
  const why = `${to.place}: ${answer.error.message}`;
  switch (answer.is) {
    case "nobody":
      return unavailable(noStream(to.place, to.topic));
    case "forbidden":
      return unavailable(outage(why, answer.error));
    case "unfit":
      return unfit(answer.error);
    case "unsent":
      return unavailable(outage(`the connection to ${to.place} has ended`, answer.error));
    case "silence":
      return unknown(outage(why, answer.error));
  }
}

/**
 * Recognises what a stream answers to nearly every message, `{"stream":"NAME", "seq":7}`, without a JSON object for each. False means that
 * the answer must be parsed.
 */
export function plainAckOf(stream: string): (answer: NatsAnswer) => boolean {
  const starts = ["", " "].map((space) => Buffer.from(`{"stream":${JSON.stringify(stream)},${space}"seq":`));
  return (answer) => !("is" in answer) && starts.some((start) => isPlain(answer, start));
}

const [zero, nine, brace] = [48, 57, 125];

/** The start, a number that does not begin with 0, and the end. */
function isPlain(data: Uint8Array, start: Uint8Array): boolean {
  const end = data.length - 1;
  if (end <= start.length || data[end] !== brace) return false;
  for (let i = 0; i < start.length; i++) if (data[i] !== start[i]) return false;
  if (data[start.length] === zero) return false;
  for (let i = start.length; i < end; i++) if (data[i]! < zero || data[i]! > nine) return false;
  return true;
}

interface PubAck {
  readonly stream?: unknown;
  readonly seq?: unknown;
  readonly error?: { readonly err_code?: unknown; readonly description?: unknown };
}

function verdictOf(data: Uint8Array, id: string, { topic, stream, place }: Destination): PublishResult {
  const ack = parse(data);
  const code = ack.error?.err_code;
  if (typeof code === "number") {
    const { description } = ack.error!;
    const why = `${typeof description === "string" ? description.slice(0, 300) : "refused"} (JetStream error ${code})`;
    if (code === codes.messageTooLarge || code === codes.headersTooLarge) return tooLarge(id, `is refused by stream ${stream}: ${why}`);
    return unavailable(outage(`stream ${stream} of ${place}: ${why}`));
  }
  // A duplicate of what is stored already is stored.
  if (ack.stream === stream && typeof ack.seq === "number" && ack.seq > 0) return stored;
  return unknown(outage(`${place}: somebody else than stream ${stream} answers on ${topic}`));
}

function parse(data: Uint8Array): PubAck {
  try {
    return (JSON.parse(new TextDecoder().decode(data)) as PubAck | null) ?? {};
  } catch {
    return {};
  }
}
