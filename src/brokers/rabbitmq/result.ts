import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import type { WaybillError } from "../../core/errors.ts";
import { asWord } from "../../core/text.ts";
import { outage } from "../kit/outage.ts";
import { stored, tooLarge, unavailable, unfit, unknown } from "../kit/results.ts";
import { AmqpRefusal, codes } from "./driver.ts";
import { explain } from "./link.ts";
import type { MessageFate } from "./publisher.ts";

/** Turns a message's fate into a result: by AMQP's reply codes, never by their text. */
export function resultOf(fate: MessageFate, { topic, envelope: { id } }: Outgoing, shown: string, exchange: string): PublishResult {
  switch (fate.is) {
    case "stored":
      return stored;
    case "returned":
      return unavailable(unbound(shown, exchange, topic, fate.why));
    case "nacked":
      return unavailable(outage(`a queue of ${shown} that is bound for ${topic} did not take it: it is full, or lacks its leader`));
    case "unfit":
      return unfit(fate.error);
    case "unsent":
      return unavailable(explainSend(fate.error, shown, topic));
    case "lost":
      return lostResult(fate, { id, topic }, shown);
  }
}

interface Sent {
  readonly id: string;
  readonly topic: string;
}

function lostResult({ error, alone, fresh }: MessageFate & { is: "lost" }, { id, topic }: Sent, shown: string): PublishResult {
  const why = explainSend(error, shown, topic);
  if (!(error instanceof AmqpRefusal) || !error.publishing) return unknown(why);
  // The server checks permissions before a channel's first message, and then remembers them.
  if (error.code === codes.accessRefused && (alone || fresh)) return unavailable(why);
  // With several unanswered messages, the server does not say which one it refused, nor which ones it had stored before.
  if (!alone) return unknown(why);
  if (error.code === codes.notFound) return unavailable(why);
  if (error.code !== codes.preconditionFailed && error.code !== codes.contentTooLarge) return unknown(why);
  return tooLarge(id, `is refused by ${shown}: ${error.message}`, error);
}

/** Why nothing can be sent. A publish looks up nothing but the exchange, and provisioning creates it. */
export function explainSend(error: unknown, shown: string, topic: string): Error {
  const why = explain(error, shown);
  if (!(error instanceof AmqpRefusal) || error.code !== codes.notFound) return why;
  return outage(`${why.message}: ${provision(shown, topic)}`, error);
}

const provision = (shown: string, topic: string): string =>
  `run waybill migrate --broker ${shown} --topics ${asWord(topic)} --consumers NAME,…`;

export const unbound = (shown: string, exchange: string, topic: string, why: string): WaybillError =>
  outage(`no queue of ${shown} is bound to the exchange ${exchange} for ${topic} (${why}): ${provision(shown, topic)}`);

export const blockedBy = (shown: string, reason: string): WaybillError =>
  outage(`${shown} takes no messages at present, and says why: ${reason}`);
