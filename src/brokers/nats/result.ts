import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { WaybillError } from "../../core/errors.ts";
import { codes } from "./api.ts";
import type { Answer } from "./driver.ts";
import { noStream } from "./streams.ts";

/** What an answer to a message means for it: by JetStream's numbers, never by its words. */
export function resultOf(answer: Answer, message: Outgoing, stream: string, place: string): PublishResult {
  const { topic } = message;
  switch (answer.is) {
    case "answer":
      return verdictOf(answer.message.data, message, stream, place);
    case "nobody":
      return unavailable(noStream(place, topic));
    case "forbidden":
      return unavailable(new WaybillError("DESTINATION_UNAVAILABLE", `${place}: ${answer.error.message}`, { cause: answer.error }));
    case "unsent":
      return unavailable(new WaybillError("DESTINATION_UNAVAILABLE", `the connection to ${place} has ended`, { cause: answer.error }));
    case "unfit":
      return unfit(
        new WaybillError("INVALID_HEADER", `event ${message.envelope.id} cannot be sent: ${answer.error.message}`, { cause: answer.error }),
      );
    case "silence":
      return unknown(`${place}: ${answer.error.message}`, answer.error);
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
      return tooLarge(message, `is refused by stream ${stream}: ${why}`);
    return unavailable(new WaybillError("DESTINATION_UNAVAILABLE", `stream ${stream} of ${place}: ${why}`));
  }
  // A duplicate of what is stored already is stored.
  if (ack.stream === stream && typeof ack.seq === "number" && ack.seq > 0) return { status: "stored" };
  return unknown(`${place}: somebody else than stream ${stream} answers on ${message.topic}`);
}

function parse(data: Uint8Array): PubAck {
  try {
    return (JSON.parse(new TextDecoder().decode(data)) as PubAck | null) ?? {};
  } catch {
    return {};
  }
}

export const tooLarge = ({ envelope: { id } }: Outgoing, why: string): PublishResult =>
  unfit(new WaybillError("MESSAGE_TOO_LARGE", `event ${id} ${why}`));

export const unfit = (error: Error): PublishResult => ({ status: "refused", blame: "event", retryable: false, error });

export const unavailable = (error: Error): PublishResult => ({ status: "refused", blame: "destination", retryable: true, error });

export const unknown = (why: string, cause?: unknown): PublishResult => ({
  status: "unknown",
  error: new WaybillError("PUBLISH_UNKNOWN", why, { cause }),
});
