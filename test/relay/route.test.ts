import { describe, expect, test } from "vitest";
import type { Envelope } from "../../src/core/event.ts";
import { DEFAULT_ROUTE, routeOf, topicOf } from "../../src/relay/route.ts";

const event: Envelope = {
  id: "00000000-0000-4000-8000-000000000001",
  seq: 1n,
  aggregateType: "Order",
  aggregateId: "o-1",
  type: "OrderPlaced",
  eventVersion: 2,
  data: new Uint8Array(),
  contentType: "application/json",
  headers: { tenant: "Acme" },
  idempotencyKey: null,
  createdAt: new Date(0),
};

describe("a route template", () => {
  test.each([
    [DEFAULT_ROUTE, "order.events"],
    ["{aggregate_type}.{event_type}", "Order.OrderPlaced"],
    ["{event_type|lower}.v{event_version}", "orderplaced.v2"],
    ["{header:tenant|lower}.orders", "acme.orders"],
    ["{aggregate_id}", "o-1"],
    ["fixed", "fixed"],
  ])("%s gives %s", (template, topic) => expect(topicOf(routeOf(template), event)).toBe(topic));

  test.each(["", "{}", "{nothing}", "{aggregate_type", "aggregate_type}", "{aggregate_type|upper}", "{{aggregate_type}}"])(
    "%j is refused before anything is published",
    (template) => {
      expect(() => routeOf(template)).toThrow(/INVALID_OPTION|route/);
    },
  );
});

describe("an event for which the route gives no topic", () => {
  test.each([
    ["a header that is missing", routeOf("{header:none}")],
    ["nothing", () => ""],
    ["a space", () => "a b"],
    ["no text", () => 7 as unknown as string],
    [
      "an error",
      () => {
        throw new Error("boom");
      },
    ],
    ["too long a name", () => "x".repeat(256)],
  ])("%s: ROUTE_FAILED", (_what, route) => {
    expect(() => topicOf(route, event)).toThrow(expect.objectContaining({ code: "ROUTE_FAILED" }) as Error);
  });
});
