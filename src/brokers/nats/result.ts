import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { WaybillError } from "../../core/errors.ts";
import { outage } from "../kit/outage.ts";
import { stored, tooLarge, unavailable, unfit, unknown } from "../kit/results.ts";
import { codes } from "./api.ts";
import type { NatsAnswer } from "./driver.ts";
import { noStream } from "./streams.ts";

/** What an answer to a message means for it: by JetStream's numbers, never by its words. */
export function resultOf(answer: NatsAnswer, message: Outgoing, stream: string, place: string): PublishResult {
  const { topic, envelope } = message;
  switch (answer.is) {
    case "answer":
      return verdictOf(answer.message.data, message, stream, place);
    case "nobody":
      return unavailable(noStream(place, topic));
    case "forbidden":
      return unavailable(outage(`${place}: ${answer.error.message}`, answer.error));
    case "unsent":
      return unavailable(outage(`the connection to ${place} has ended`, answer.error));
    case "unfit":
      return unfit(
        new WaybillError("INVALID_HEADER", `event ${envelope.id} cannot be sent: ${answer.error.message}`, { cause: answer.error }),
      );
    case "silence":
      return unknown(outage(`${place}: ${answer.error.message}`, answer.error));
  }
}

interface PubAck {
  readonly stream?: unknown;
  readonly seq?: unknown;
  readonly error?: { readonly err_code?: unknown; readonly description?: unknown };
}

function verdictOf(data: Uint8Array, message: Outgoing, stream: string, place: string): PublishResult {
  const ack = parse(data);
  const code = ack.error?.err_code;
  if (typeof code === "number") {
    const why = `${String(ack.error?.description)} (JetStream error ${code})`;
    if (code === codes.messageTooLarge || code === codes.headersTooLarge)
      return tooLarge(message.envelope.id, `is refused by stream ${stream}: ${why}`);
    return unavailable(outage(`stream ${stream} of ${place}: ${why}`));
  }
  // A duplicate of what is stored already is stored.
  if (ack.stream === stream && typeof ack.seq === "number" && ack.seq > 0) return stored;
  return unknown(outage(`${place}: somebody else than stream ${stream} answers on ${message.topic}`));
}

function parse(data: Uint8Array): PubAck {
  try {
    return (JSON.parse(new TextDecoder().decode(data)) as PubAck | null) ?? {};
  } catch {
    return {};
  }
}
