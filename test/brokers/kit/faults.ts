import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { sampleEvent, within } from "../../../src/conformance/corpus.ts";
import { byAggregate, firsts, pause } from "./changes.ts";
import { openScene, type Scene } from "./scene.ts";
import { freshType, type BrokerServer, type Reach, type Subject } from "./subject.ts";

/** What may befall any broker; call it in a `describeWith`. Gives the server and the reach to tests of the broker's own. */
export function faultSuite(subject: Subject): { readonly server: () => BrokerServer; readonly scene: () => Promise<Scene> } {
  let server: BrokerServer;
  beforeAll(async () => void (server = await subject.start()));
  afterAll(() => server[Symbol.asyncDispose]());
  beforeEach(async () => {
    server.thaw();
    if (server.pid === null) await server.start();
  });
  const reach = (): Reach => ({ url: server.url(), open: () => subject.open(server.url()) });
  const scene = (): Promise<Scene> => openScene(subject, reach());

  test("killed and started again under load, time after time: nothing lost, reordered or done twice", async () => {
    await using scene = await openScene(subject, reach());
    const load = scene.load();
    for (let round = 0; round < 2; round++) {
      await scene.warm(scene.effects().length + 50);
      await pause(137 * round);
      await server.kill9();
      await pause(200);
      await server.start();
    }
    await scene.warm(scene.effects().length + 50);
    await load.end();
    await scene.done();
    await scene.judge(2);
  });

  test("stopped for longer than any back-off: seen, nothing spent, and all goes on by itself", async () => {
    await using scene = await openScene(subject, reach());
    const load = scene.load();
    await scene.warm(50);
    const told = (): string[] => scene.events.map(({ type }) => type).filter((type) => type.startsWith("destination."));
    await server.stop("fast");
    const before = told().length; // it may have been slow while it was there
    await scene.seen();
    await pause(3_000);
    expect(told().at(-1)).toBe("destination.opened");
    expect(
      told()
        .slice(before)
        .filter((type) => type === "destination.opened").length,
    ).toBeLessThanOrEqual(1);
    await server.start();
    await scene.healed();
    await load.end();
    await scene.done();
    await scene.judge(1);
  });

  test("frozen for longer than the deadline: seen at once, nothing spent", async () => {
    await using scene = await openScene(subject, reach());
    const load = scene.load();
    await scene.warm(50);
    server.freeze();
    const since = performance.now();
    expect((await scene.seen()) - since).toBeLessThan(15_000);
    await pause(since + 4_000 - performance.now());
    server.thaw();
    await scene.healed();
    await load.end();
    await scene.done();
    await scene.judge(1);
  });

  test("behind a link that is dead in one direction or both, and does not say so; or that is cut in the middle of messages", async () => {
    await using link = await subject.proxied();
    await using scene = await openScene(subject, { url: link.server.url(), open: () => subject.open(link.url) });
    const load = scene.load();
    for (const directions of [["up"], ["up", "down"]] as const) {
      await scene.warm(scene.effects().length + 50);
      for (const direction of directions) link.proxy.fault(direction, { hold: true });
      await scene.seen();
      // The second time they give the link up by themselves. What was on its way comes late, from a connection that nobody has any more.
      await pause(directions.length === 1 ? 1_000 : subject.silenceMs + 1_000);
      link.proxy.heal();
      await scene.healed();
    }
    for (let round = 0; round < 8; round++) {
      link.proxy.fault(round % 2 === 0 ? "up" : "down", { cutAfter: 5_003 + 2_009 * round });
      await pause(300);
      link.proxy.heal();
      await pause(300);
    }
    await load.end();
    await scene.done();
    await scene.judge(10);
  });

  test("cut at any byte while it is opened, read and written to: nobody hangs, and all ends when it is told to", async () => {
    await using link = await subject.proxied();
    const { topic } = freshType();
    await subject.provision(link.server.url(), [topic], ["shop"]);
    for (let bytes = 1; bytes < 2_500; bytes += 83) {
      const direction = bytes % 2 === 0 ? "up" : "down";
      const broker = subject.open(link.url);
      link.proxy.fault(direction, { cutAfter: bytes });
      const ending = new AbortController();
      const reading = (async () => {
        for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 5 }, ending.signal))
          await delivery.ack();
      })().catch(() => undefined); // it may fail, and must not stay
      const publishing = broker.publish([{ topic, source: "/test", envelope: sampleEvent() }], ending.signal);
      await pause(80);
      ending.abort();
      const where = `${direction} after ${bytes} bytes`;
      await within(2_000, `a publish, cut ${where},`, publishing);
      await within(15_000, `a receiving, cut ${where},`, reading);
      await within(15_000, `closing, cut ${where},`, broker[Symbol.asyncDispose]());
      link.proxy.heal();
    }
  });

  test("its topic taken away under load: what follows waits, says for what, and goes on when there is one again", async () => {
    await using scene = await openScene(subject, reach());
    const load = scene.load();
    await scene.warm(200);
    await subject.remove(server.url(), scene.topic);
    await scene.seen(subject.gone.publishing);
    await load.end();
    const told = (): boolean => scene.events.some((event) => event.type === "subscriber.trouble" && subject.gone.reading.test(event.error));
    await expect.poll(told, { timeout: 20_000 }).toBe(true);
    await subject.provision(server.url(), [scene.topic], ["shop"]);
    await expect.poll(async () => (await scene.status()).states.PUBLISHED, { timeout: 30_000 }).toBe(scene.added.length);
    // What nobody had read went with the topic; what came after it is complete and in order.
    const after = firsts(await scene.stored());
    const all = byAggregate(scene.added);
    for (const [aggregate, numbers] of Object.entries(byAggregate(after))) expect(numbers).toEqual(all[aggregate]!.slice(-numbers.length));
    const done = (): Set<string> => new Set(scene.effects().map(({ aggregate, n }) => `${aggregate}/${n}`));
    await expect.poll(() => after.filter(({ aggregate, n }) => !done().has(`${aggregate}/${n}`)), { timeout: 40_000 }).toEqual([]);
    for (const numbers of Object.values(byAggregate(scene.effects()))) expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
    const { states, breakers } = await scene.status();
    expect(states).toMatchObject({ FAILED: 0, DEAD: 0, BLOCKED: 0 });
    expect(breakers).toEqual([]);
  });

  test("an event larger than the destination takes, in the middle of an aggregate's run, stops its own aggregate and no other", async () => {
    const type = freshType();
    await using small = await subject.small(server, type.topic);
    await using scene = await openScene(subject, small, type);
    for (let n = 1; n <= 5; n++) {
      await scene.add("a", n === 3 ? { text: "x".repeat(small.bytes) } : {});
      await scene.add("b");
    }
    const states = async () => (await scene.status()).states;
    await expect.poll(states, { timeout: 20_000 }).toMatchObject({ PUBLISHED: 7, DEAD: 1, BLOCKED: 2, PENDING: 0 });
    const { dead, breakers } = await scene.status();
    expect(dead).toMatchObject([{ events: 1, error: expect.stringMatching(/^MESSAGE_TOO_LARGE/) as string }]);
    expect(breakers).toEqual([]);
    await expect.poll(() => byAggregate(scene.effects())).toEqual({ a: [1, 2], b: [1, 2, 3, 4, 5] });
  });

  return { server: () => server, scene };
}
