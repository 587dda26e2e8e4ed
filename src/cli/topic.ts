import type { EventRecord } from "../contracts/operator.ts";
import { asError } from "../core/errors.ts";
import type { Envelope } from "../core/event.ts";
import { redactText } from "../core/text.ts";
import { DEFAULT_ROUTE, routeOf, topicOf, type Route } from "../relay/route.ts";
import { relaySettings } from "../relay/settings.ts";
import type { Config } from "./config.ts";
import { flagsOf } from "./flags.ts";

export const routeFlag = flagsOf({ route: relaySettings.route });

/** The flag wins over the file. */
export const chosenRoute = (config: Config, values: { readonly route?: string | Route | undefined }): Route =>
  routeOf(values.route ?? config.route ?? DEFAULT_ROUTE);

/** Where a relay with this route publishes a stored event, or why it has no topic. */
export function topicFor(route: Route, event: EventRecord): { readonly topic: string } | { readonly topic: null; readonly why: string } {
  try {
    return { topic: topicOf(route, envelopeOf(event)) };
  } catch (error) {
    return { topic: null, why: redactText(asError(error).message) };
  }
}

/** A list leaves a large payload out. No template reads the payload. */
const envelopeOf = ({ payload, ...event }: EventRecord): Envelope => ({ ...event, data: Buffer.from(payload ?? "") });
