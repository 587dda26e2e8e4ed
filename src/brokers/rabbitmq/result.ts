import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { AmqpRefusal, codes } from "./driver.ts";
import { explain } from "./link.ts";
import type { Fate } from "./publisher.ts";

export const stored: PublishResult = { status: "stored" };
export const skipped: PublishResult = { status: "skipped" };

/** What its fate means for a message: by the protocol's numbers, never by words. */
export function resultOf(fate: Fate, { topic, envelope: { id } }: Outgoing, shown: string, exchange: string): PublishResult {
  switch (fate.is) {
    case "stored":
      return stored;
    case "returned":
      return unavailable(unbound(shown, exchange, topic, fate.why));
    case "nacked":
      return unavailable(
        new WaybillError(
          "DESTINATION_UNAVAILABLE",
          `a queue of ${shown} that is bound for ${topic} did not take it: it is full, or lacks its leader`,
        ),
      );
    case "lost":
      return lostResult(fate, id, shown);
  }
}

function lostResult({ error, alone, fresh }: Fate & { is: "lost" }, id: string, shown: string): PublishResult {
  const why = explain(error, shown);
  if (!(error instanceof AmqpRefusal) || !error.publishing) return unknown(why);
  // Rights are looked at before the first message of a channel, and then remembered.
  if (error.code === codes.accessRefused && (alone || fresh)) return unavailable(why);
  // With others on the channel, nobody says which of them the server means, nor which it had stored before.
  if (!alone) return unknown(why);
  if (error.code === codes.notFound) return unavailable(why);
  if (error.code !== codes.preconditionFailed && error.code !== codes.contentTooLarge) return unknown(why);
  return unfit(new WaybillError("MESSAGE_TOO_LARGE", `event ${id} is refused by ${shown}: ${error.message}`, { cause: error }));
}

export const unfit = (error: Error): PublishResult => ({ status: "refused", blame: "event", retryable: false, error });

export function unavailable(error: Error): PublishResult {
  const named = isWaybillError(error) ? error : new WaybillError("DESTINATION_UNAVAILABLE", error.message, { cause: error });
  return { status: "refused", blame: "destination", retryable: true, error: named };
}

export const unknown = (cause: Error): PublishResult => ({
  status: "unknown",
  error: new WaybillError("PUBLISH_UNKNOWN", `it may or may not be stored: ${cause.message}`, { cause }),
});

export const unbound = (shown: string, exchange: string, topic: string, why: string): WaybillError =>
  new WaybillError(
    "DESTINATION_UNAVAILABLE",
    `no queue of ${shown} is bound to the exchange ${exchange} for ${topic} (${why}): run waybill migrate --broker ${shown} --topics ${topic} --consumers NAME,…`,
  );

export const blockedBy = (shown: string, reason: string): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", `${shown} takes no messages at present, and says why: ${reason}`);
