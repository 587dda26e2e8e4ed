import { expect, test } from "vitest";
import type { Claim } from "../../src/contracts/outbox-store.ts";
import { turn } from "../../src/core/clock.ts";
import { createQueue, groupsOf } from "../../src/relay/groups.ts";
import { createStops } from "../../src/relay/stops.ts";

let seq = 0n;
function claim(aggregateId: string, topic: string): Claim {
  seq++;
  const envelope = {
    id: String(seq),
    seq,
    aggregateType: topic,
    aggregateId,
    type: "T",
    eventVersion: 1,
    data: new Uint8Array(),
    contentType: "",
    headers: { topic },
    idempotencyKey: null,
    createdAt: new Date(0),
  };
  return { envelope: { ...envelope, aggregateType: "A" }, lane: 0, epoch: 1n, failures: 0, deaths: 0 };
}
const topicIn = ({ envelope }: Claim): string => envelope.headers["topic"]!;

test("each topic is a group of its own; an aggregate that spans topics joins them, whatever the order", () => {
  const claims = [claim("a", "t1"), claim("b", "t2"), claim("c", "t3"), claim("a", "t4"), claim("d", "t2"), claim("c", "t2")];
  const groups = groupsOf(claims, topicIn);
  expect(groups.map(({ topics }) => [...topics].sort()).sort()).toEqual([
    ["t1", "t4"],
    ["t2", "t3"],
  ]);
  for (const group of groups)
    expect(group.claims.map(({ envelope }) => envelope.seq)).toEqual(
      [...group.claims.map(({ envelope }) => envelope.seq)].sort((x, y) => Number(x - y)),
    );
});

test("groups of one topic or aggregate go one after the other, others side by side", async () => {
  const queue = createQueue();
  const log: string[] = [];
  const gates = new Map<string, () => void>();
  const start = (name: string, claims: readonly Claim[]): Promise<void> =>
    queue.run(groupsOf(claims, topicIn)[0]!, async () => {
      log.push(`${name} begins`);
      await new Promise<void>((resolve) => gates.set(name, resolve));
      log.push(`${name} ends`);
    });
  const first = start("first", [claim("a", "t1")]);
  const sameTopic = start("same topic", [claim("b", "t1")]);
  const sameAggregate = start("same aggregate", [claim("a", "t2")]);
  const other = start("other", [claim("c", "t3")]);
  await turn();
  expect(log).toEqual(["first begins", "other begins"]);
  gates.get("first")!();
  await turn();
  expect(log.slice(2).sort()).toEqual(["first ends", "same aggregate begins", "same topic begins"]);
  for (const gate of gates.values()) gate();
  await Promise.all([first, sameTopic, sameAggregate, other]);
});

test("an aggregate that needs many round trips goes apart, so that its topic does not wait for it; and its next events wait for it, however few", () => {
  const queue = createQueue();
  const options = { run: 1, queue };
  const hot = Array.from({ length: 9 }, () => claim("hot", "t"));
  const others = [...Array.from({ length: 8 }, () => claim("warm", "t")), claim("cold", "t")];
  const groups = groupsOf([...hot, ...others], topicIn, options);
  expect(groups.map(({ topics, aggregates }) => [[...topics], [...aggregates]])).toEqual([
    [[], ["A\0hot"]],
    [["t"], ["A\0warm", "A\0cold"]],
  ]);
  const log: string[] = [];
  const start = (claims: readonly Claim[], work: Promise<void>): Promise<void>[] =>
    groupsOf(claims, topicIn, options).map((group) =>
      queue.run(group, () => {
        log.push([...group.aggregates].join());
        return work;
      }),
    );
  let finish = (): void => undefined;
  const finished = new Promise<void>((resolve) => (finish = resolve));
  const first = start(hot, finished);
  const next = start([claim("hot", "t"), claim("cold", "t")], Promise.resolve());
  return turn()
    .then(() => expect(log).toEqual(["A\0hot", "A\0cold"]))
    .then(finish)
    .then(() => Promise.all([...first, ...next]))
    .then(() => expect(log).toEqual(["A\0hot", "A\0cold", "A\0hot"]))
    .then(() => expect(queue.apart("A\0hot")).toBe(false));
});

test("a sink that takes a whole run at once gets it with its topic", () => {
  const groups = groupsOf(
    Array.from({ length: 50 }, (_, i) => claim(i === 0 ? "cold" : "hot", "t")),
    topicIn,
    { queue: createQueue() },
  );
  expect(groups).toHaveLength(1);
});

test("a group whose predecessor failed still has its turn", async () => {
  const queue = createQueue();
  const group = groupsOf([claim("a", "t")], topicIn)[0]!;
  const failing = queue.run(group, () => Promise.reject(new Error("no")));
  const next = queue.run(group, () => Promise.resolve("done"));
  await expect(failing).rejects.toThrow("no");
  await expect(next).resolves.toBe("done");
});

test("followers claimed before a stop was settled wait; events before it, and windows claimed later, do not", () => {
  const stops = createStops();
  const part = {
    window: null as never,
    claims: [{ ...claim("x", "t"), envelope: { ...claim("x", "t").envelope, seq: 5n } }],
    claimedAt: stops.tick(),
  };
  const ahead = stops.tick();
  stops.stop(part, "A\0x", 5n);
  expect(stops.waits("A\0x", 6n, ahead)).toBe(true);
  expect(stops.waits("A\0x", 4n, ahead)).toBe(false);
  expect(stops.waits("A\0x", 5n, ahead)).toBe(false);
  stops.settled(part);
  expect(stops.waits("A\0x", 6n, ahead)).toBe(true);
  expect(stops.waits("A\0x", 6n, stops.tick())).toBe(false);
  expect(stops.waits("A\0y", 6n, ahead)).toBe(false);
});
