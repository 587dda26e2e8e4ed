import type { Status } from "../../contracts/operator.ts";
import { inWords } from "../duration.ts";
import { count, fields, shorten, table, type Output } from "../output.ts";
import { command } from "../parse.ts";
import { storeFlag, storeOf } from "./shared.ts";

export const status = command({
  name: "status",
  summary: "Shows events by state, the oldest that waits, relays and their lanes, holds, destinations and dead letters.",
  flags: storeFlag,
  examples: ["waybill status --store sqlite:./app.db", "waybill status --store sqlite:./app.db --json"],
  async run(terminal, values) {
    await using opened = await storeOf(terminal, values);
    const current = await opened.store.operator.status();
    terminal.out.answer(current, () => page(terminal.out, current));
  },
});

function page(out: Output, { states, oldestUnpublishedMs, relays, lanes, holds, breakers, window, dead, schemaVersion }: Status): string {
  const blocks = [
    table(out, ["state", "events"], Object.entries(states)),
    fields(out, [
      ["oldest unpublished", oldestUnpublishedMs === null ? "none" : inWords(oldestUnpublishedMs)],
      ["window", `${count(window.events, "event")}, ${count(window.suspects, "suspect")}`],
      ["lanes", `${lanes.owned} owned, ${lanes.free} free of ${lanes.total}`],
      ["holds", `${count(holds.aggregates, "aggregate")}, ${count(holds.blocked, "blocked event")}`],
      ["schema version", schemaVersion],
    ]),
  ];
  if (relays.length > 0) {
    const rows = relays.map((relay) => [
      relay.relay,
      relay.live ? "live" : "lapsed",
      relay.lanes.length,
      `${relay.window} of ${relay.windowLimit}`,
      relay.expiresAt,
    ]);
    blocks.push(table(out, ["relay", "lease", "lanes", "window", "lease until"], rows));
  }
  if (breakers.length > 0) {
    const rows = breakers.map((breaker) => [breaker.destination, breaker.aggregates, breaker.since, shorten(breaker.why, 100)]);
    blocks.push(table(out, ["waiting for", "aggregates", "since", "why"], rows));
  }
  if (holds.list.length > 0) {
    const rows = holds.list.map((hold) => [
      `${hold.aggregateType} ${hold.aggregateId}`,
      hold.releasing ? "releasing" : "held",
      hold.since,
      shorten(hold.why, 100),
    ]);
    blocks.push(table(out, ["aggregate", "hold", "since", "why"], rows));
    if (holds.aggregates > holds.list.length) blocks.push(`… and ${holds.aggregates - holds.list.length} more`);
  }
  if (dead.length > 0) {
    const rows = dead.map((group) => [group.events, group.oldest, shorten(group.error, 100)]);
    blocks.push(table(out, ["dead", "oldest", "error"], rows));
  }
  return blocks.join("\n\n");
}
