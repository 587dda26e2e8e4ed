import { describe, expect, test } from "vitest";
import { sharedNow } from "../../src/core/clock.ts";
import { halved } from "../../src/proof/run/faulty-sinks.ts";
import { recordInbox, recordRelay, recordSource } from "../../src/proof/run/recorded.ts";
import type { Point } from "../../src/proof/crew/failpoints.ts";
import { contentOf, shaOf, shaOfDraft } from "../../src/proof/run/workload.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Inbox } from "../../src/contracts/inbox.ts";
import type { LeaseStore } from "../../src/contracts/lease-store.ts";
import type { Claim, OutboxStore } from "../../src/contracts/outbox-store.ts";
import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import type { Source } from "../../src/contracts/source.ts";
import { systemClock } from "../../src/core/clock.ts";
import { WaybillError } from "../../src/core/errors.ts";
import { seededRandom } from "../../src/core/random.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";
import type { Act, Phase } from "../../src/proof/judge/history.ts";

const never = new AbortController().signal;

function recorder() {
  const written: [Phase, Act["op"]][] = [];
  return { written, write: (phase: Phase, act: Act) => void written.push([phase, act.op]) };
}

const lost = (): Promise<never> => Promise.reject(new WaybillError("STORE_UNAVAILABLE", "the link was lost"));

describe("a history", () => {
  test("tells of what a relay tried before it is known, and of what nobody answered", async () => {
    const history = recorder();
    const { outbox, leases } = recordRelay(history, systemClock, () => undefined);
    const broken = outbox({ claim: lost, settle: lost } as unknown as OutboxStore);
    await expect(broken.claim({} as never, {} as never)).rejects.toThrow("lost");
    await expect(broken.settle("r", 1n as never, [])).rejects.toThrow("lost");
    const lessBroken = leases({ renew: lost, take: async () => new Map([[1, 2n]]) } as unknown as LeaseStore);
    await expect(lessBroken.renew("r", 1_000)).rejects.toThrow("lost");
    await lessBroken.take("r", [1]);
    expect(history.written).toEqual([
      ["invoked", "claim"],
      ["unknown", "claim"],
      ["invoked", "settle"],
      ["unknown", "settle"],
      ["invoked", "lease"],
      ["unknown", "lease"],
      ["invoked", "lease"],
      ["ok", "lease"],
    ]);
  });

  test("knows under which epoch an event goes that was claimed anew while the settle of its return was tried again", async () => {
    const acts: Act[] = [];
    const records = recordRelay({ write: (_, act) => void acts.push(act) }, systemClock, () => undefined);
    const envelope = sampleEvent({ aggregateId: "a" });
    const claims = [7n, 8n].map((epoch) => ({ envelope, lane: 3, epoch }) as Claim);
    let claimed = 0;
    const outbox = records.outbox({
      claim: async () => ({ claims: [claims[claimed++]!] }),
      settle: async () => ({ settled: 0 }),
    } as unknown as OutboxStore);
    const sink = records.sink({ publish: async () => [{ status: "stored" }] } as unknown as Sink);
    const claim = (): Promise<unknown> => outbox.claim({} as never, {} as never);
    const giveBack = (nth: number): Promise<unknown> => outbox.settle("r", 1n as never, [{ claim: claims[nth]!, as: "returned" }]);
    await claim();
    await claim();
    await giveBack(0);
    await sink.publish([{ topic: "t", source: "/s", envelope }], never);
    expect(acts.at(-1)).toMatchObject({ op: "publish", events: [{ id: envelope.id, lane: 3, epoch: 8 }] });
    // What was given back is claimed by nobody.
    await giveBack(1);
    await sink.publish([{ topic: "t", source: "/s", envelope }], never);
    expect(acts.at(-1)).toMatchObject({ op: "publish", events: [{ id: envelope.id, lane: -1, epoch: -1 }] });
  });

  test("tells with a publish what its relay last read on its own clock: whoever is frozen since cannot know", async () => {
    const acts: Act[] = [];
    const clock = manualClock();
    const records = recordRelay({ write: (_, act) => void acts.push(act) }, clock, () => undefined);
    const sink = records.sink({ publish: async () => [{ status: "stored" }] } as unknown as Sink);
    const message = { topic: "t", source: "/s", envelope: sampleEvent({ aggregateId: "a" }) };
    const seen = records.clock.monotonic();
    const since = sharedNow();
    await clock.advance(5_000);
    await sink.publish([message], never);
    expect(acts).toMatchObject([{ mono: seen }, { mono: seen }]);
    expect((acts[0] as { began: number }).began).toBeLessThanOrEqual(since);
    expect(records.clock.monotonic()).toBe(seen + 5_000);
    await sink.publish([message], never);
    expect(acts.at(-1)).toMatchObject({ mono: seen + 5_000 });
    expect((acts.at(-1) as { began: number }).began).toBeGreaterThanOrEqual(since);
  });

  test("tells of an acknowledgement that nobody answered", async () => {
    const history = recorder();
    const delivery = { topic: "t", envelope: sampleEvent({ aggregateId: "a" }), aside: () => undefined, ack: lost };
    const source = recordSource({ receive: () => [delivery] } as unknown as Source, history, "stock");
    for await (const { ack } of source.receive({ consumer: "stock", topics: ["t"], prefetch: 1 }, never))
      await expect(ack()).rejects.toThrow("lost");
    expect(history.written).toEqual([
      ["ok", "deliver"],
      ["invoked", "ack"],
      ["unknown", "ack"],
    ]);
  });

  test("hands a message that is no event on as it came, and records no delivery of it", async () => {
    const history = recorder();
    const unreadable = { why: "it has no id", raw: new Uint8Array([1]) };
    const delivery = { topic: "t", envelope: sampleEvent({}), unreadable, aside: () => undefined, ack: () => Promise.resolve() };
    const source = recordSource({ receive: () => [delivery] } as unknown as Source, history, "stock");
    for await (const each of source.receive({ consumer: "stock", topics: ["t"], prefetch: 1 }, never)) {
      expect(each.unreadable).toEqual(unreadable);
      await each.ack();
    }
    expect(history.written).toEqual([]);
  });

  test.for([
    ["done", "ok"],
    ["duplicate", "failed"],
    [new Error("the handler fails"), "failed"],
    [new WaybillError("COMMIT_UNKNOWN", "the answer was lost"), "unknown"],
  ] as const)("tells an effect that ends with %s as %s", async ([end, phase]) => {
    const history = recorder();
    let applied = 0;
    const once: Inbox<unknown>["once"] = async ({ id }, _version, work) => {
      if (end === "done") await work(undefined, new Set([id]), () => undefined);
      if (end instanceof Error) throw end;
      return end as never;
    };
    const inbox = recordInbox({ once } as unknown as Inbox<unknown>, history, () => void (applied += 1));
    await inbox.once({ consumer: "stock", id: "e1" }, 1, async () => undefined).catch(() => undefined);
    expect(history.written).toEqual([
      ["invoked", "effect"],
      [phase, "effect"],
    ]);
    expect(applied).toBe(end === "done" ? 1 : 0);
  });
});

describe("the points of a worker's own", () => {
  const batch: readonly Outgoing[] = Array.from({ length: 5 }, () => ({
    ...{ topic: "t", source: "/s", envelope: sampleEvent({ aggregateId: "a" }) },
  }));
  const sinkOf = (sent: Outgoing[][], status: PublishResult["status"]): Sink =>
    ({
      async publish(some: readonly Outgoing[]) {
        sent.push([...some]);
        return some.map(() => ({ status }));
      },
    }) as unknown as Sink;

  test("mid-batch is where half of a batch is stored, and the other half was not sent", async () => {
    const sent: Outgoing[][] = [];
    const seen: [Point, number][] = [];
    const sink = halved(sinkOf(sent, "stored"), { hit: (at) => void seen.push([at, sent.flat().length]) });
    expect(await sink.publish(batch, never)).toHaveLength(5);
    expect(seen).toEqual([["mid-batch", 3]]);
    expect(sent.flat()).toEqual(batch);
  });

  test("nothing of the second half goes when something of the first was not stored: its followers may be there", async () => {
    const sent: Outgoing[][] = [];
    const results = await halved(sinkOf(sent, "unknown"), { hit: () => undefined }).publish(batch, never);
    expect(results.map(({ status }) => status)).toEqual(["unknown", "unknown", "unknown", "skipped", "skipped"]);
    expect(sent.flat()).toHaveLength(3);
  });
});

describe("what must arrive as it was added", () => {
  const carried = { type: "Changed", contentType: "application/json", headers: { a: "1", b: "2" }, data: Buffer.from("{}") };

  test("is the payload, the type, the content type and every header, in whatever order", () => {
    const sha = shaOf(carried);
    expect(shaOf({ ...carried, headers: { b: "2", a: "1" } })).toBe(sha);
    const others = [
      { data: Buffer.from("{ }") },
      { type: "changed" },
      { contentType: "text/plain" },
      { headers: { a: "1" } },
      { headers: { a: "1", b: "2", c: "" } },
      { headers: { a: "1", B: "2" } },
    ];
    for (const other of others) expect(shaOf({ ...carried, ...other })).not.toBe(sha);
  });

  test("is of a draft what a reader will find", () => {
    const draft = { aggregateType: "A", aggregateId: "a", type: "Changed", payload: {}, headers: { b: "2", a: "1" } };
    expect(shaOfDraft(draft)).toBe(shaOf(carried));
  });

  test("has headers that are hard to carry, too", () => {
    const random = seededRandom(1);
    const load = { ...{ aggregates: 1, hot: 0, pauseMs: 0, sleepMs: 0, bytes: 1, large: 0 }, hard: 1 };
    expect(contentOf(random, 1, load).headers).toMatchObject({ "Mixed-Case": "Zoë 🚚", empty: "" });
    expect(contentOf(random, 1, { ...load, hard: 0 }).headers).toBeUndefined();
  });
});
