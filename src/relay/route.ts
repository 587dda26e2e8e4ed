import { show, WaybillError } from "../core/errors.ts";
import type { Envelope } from "../core/event.ts";

/** Which topic an event goes to: a template, or a function of the user's. */
export type Route = (event: Envelope) => string;

export const DEFAULT_ROUTE = "{aggregate_type|lower}.events";

const fields = new Map<string, Route>([
  ["aggregate_type", (event) => event.aggregateType],
  ["aggregate_id", (event) => event.aggregateId],
  ["event_type", (event) => event.type],
  ["event_version", (event) => String(event.eventVersion)],
]);

/** `{aggregate_type|lower}.events`: column names in braces, `|lower` for lower case, `{header:NAME}` for a header. */
export function routeOf(route: string | Route): Route {
  if (typeof route === "function") return route;
  const parts = route.split(/(\{[^{}]*\})/).filter((part) => part !== "");
  const readers = parts.map((part) => (part.startsWith("{") ? readerOf(part, route) : () => part));
  if (readers.length === 0 || /[{}]/.test(route.replaceAll(/\{[^{}]*\}/g, ""))) {
    throw new WaybillError("INVALID_OPTION", `route ${JSON.stringify(route)} is not a template such as ${DEFAULT_ROUTE}`);
  }
  return (event) => readers.map((read) => read(event)).join("");
}

function readerOf(part: string, template: string): Route {
  const [, name = "", modifier] = /^\{([a-z_]+|header:[^|{}]+)(\|lower)?\}$/.exec(part) ?? [];
  const read = name.startsWith("header:") ? headerReader(name.slice("header:".length)) : fields.get(name);
  if (read === undefined) {
    throw new WaybillError(
      "INVALID_OPTION",
      `route ${JSON.stringify(template)} has ${part}: there are ${[...fields.keys()].join(", ")} and header:NAME, each with |lower`,
    );
  }
  return modifier === undefined ? read : (event) => read(event).toLowerCase();
}

function headerReader(name: string): Route {
  return (event) => {
    const value = Object.hasOwn(event.headers, name) ? event.headers[name] : undefined;
    if (value === undefined)
      throw new WaybillError("ROUTE_FAILED", `the event has no header ${JSON.stringify(name)}, which its route needs`);
    return value;
  };
}

/** The relay's list of topics. Null: it has none. */
export function listOf(topics: readonly string[] | undefined): ReadonlySet<string> | null {
  if (topics === undefined) return null;
  const list: readonly unknown[] = Array.isArray(topics) ? topics : [topics];
  const unfit = list.find((topic) => !isTopic(topic));
  if (!Array.isArray(topics) || list.length === 0 || unfit !== undefined) {
    throw new WaybillError(
      "INVALID_OPTION",
      `topics must be a list of at least one topic, such as ["orders.events"], not ${show(unfit ?? topics)}: leave it out to allow any topic`,
    );
  }
  return new Set(topics);
}

const isTopic = (topic: unknown): topic is string =>
  typeof topic === "string" && topic !== "" && topic.length <= 255 && !/[\0-\x20\x7f]/.test(topic);

/** The topic, or ROUTE_FAILED: a route that throws or gives nothing usable is the event's fault, not the broker's. */
export function topicOf(route: Route, event: Envelope): string {
  let topic: unknown;
  try {
    topic = route(event);
  } catch (cause) {
    throw new WaybillError(
      "ROUTE_FAILED",
      `the route failed for event ${event.id}: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
  if (!isTopic(topic))
    throw new WaybillError("ROUTE_FAILED", `the route gave ${JSON.stringify(topic)} for event ${event.id}, which is no topic`);
  return topic;
}
