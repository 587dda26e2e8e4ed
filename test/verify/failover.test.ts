import { expect, test } from "vitest";
import { effect, entry, fault, one, short, verdictOf, well } from "./run.ts";

const applied = (at: number, id: string) => entry(at, "stock-1", "ok", { op: "effect", consumer: "stock", id });
const over = entry(5, "nemesis", "ok", { op: "fault", fault: "failover", target: "the database", copies: 0, scope: "all" });

test("an effect that the consumer's database forgot in its own fail-over is no loss", () => {
  const history = [...well, applied(2, "e2"), fault(4, "failover", 0), over];
  expect(short(verdictOf("no loss", history, { effects: [effect(one)] }))).toBe("holds, 1 × effect-lost-with-the-database");
});

test("an effect that is missing without a fail-over, or that came after it, is a loss", () => {
  const late = [...well, fault(4, "failover", 0), over, applied(6, "e2")];
  for (const history of [late, [...well, applied(2, "e2")]])
    expect(short(verdictOf("no loss", history, { effects: [effect(one)] }))).toMatch(/^broken 1 times: .*#2 .* had no effect at stock/);
});

test("an effect is a loss when the consumer's database is another than the one that failed over", () => {
  const history = [...well, applied(2, "e2"), fault(4, "failover", 0), over];
  const found = verdictOf("no loss", history, { effects: [effect(one)] }, { effectsApart: true });
  expect(short(found)).toMatch(/^broken 1 times: .*#2 .* had no effect at stock/);
});
