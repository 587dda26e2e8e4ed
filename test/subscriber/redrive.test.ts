import { describe, expect, it } from "vitest";
import type { Failpoint } from "../../src/core/failpoints.ts";
import type { Letters } from "../../src/contracts/letters.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { envelope } from "./fakes.ts";
import { ann, redriveScene, topic, withLetters } from "./redrive-scene.ts";

const consumer = "stock";
const of = (events: readonly { id: string }[], by = consumer): readonly string[] => events.map(({ id }) => `${by} ${id}`);

describe.each([
  ["a subscriber with a seat", { assign: false }],
  ["a subscriber to which the broker assigns", { assign: true }],
])("letters that were redriven, at %s", (_, how) => {
  it("reach their consumer only, each aggregate's in the order they were parked", async () => {
    const scene = redriveScene(how);
    const other = scene.process({ consumer: "billing" });
    await other.start();
    const letters = await scene.parked("a", "b", "a", "b", "a");
    const billed = scene.effects();
    await scene.process().start();
    await scene.pass(2);
    expect(scene.effects(), "a letter waits until an operator redrives it").toEqual(billed);
    expect((await scene.store.letters.redrive({ consumer }, ann)).letters).toBe(5);
    await scene.pass(6);
    const applied = scene.effects().slice(billed.length);
    for (const aggregate of ["a", "b"]) {
      const own = letters.filter(({ aggregateId }) => aggregateId === aggregate);
      expect(applied.filter((effect) => own.some(({ id }) => effect.endsWith(` ${id}`)))).toEqual(of(own));
    }
    expect([applied.length, await scene.letters()]).toEqual([5, []]);
  });

  it("stay one letter, with the new reason, when the handler fails again, and their followers go on", async () => {
    const scene = redriveScene(how);
    const [first, second] = await scene.parked("a", "a");
    await scene.store.letters.redrive({ consumer }, ann);
    const tried: string[] = [];
    await scene
      .process({
        retry: { delaysMs: [1_000, 1_000], jitter: 0 },
        handlers: {
          OrderPlaced({ id }) {
            tried.push(id);
            if (id === first!.id) throw new Error("the carrier is closed");
          },
        },
      })
      .start();
    await scene.pass(12);
    expect(tried).toEqual([first!.id, first!.id, first!.id, second!.id]);
    const [letter, ...rest] = await scene.store.letters.list({ limit: 9 });
    expect(rest).toEqual([]);
    expect(letter).toMatchObject({ id: first!.id, error: "the carrier is closed", attempts: 3, redrivenAt: null });
    expect(scene.of("subscriber.died")).toMatchObject([{ id: first!.id, attempts: 3 }]);
  });

  it.each<Failpoint>(["before-handle", "before-commit", "after-effect"])(
    "are neither lost nor doubled nor reordered by a crash at %s: another process takes over",
    async (at) => {
      const scene = redriveScene(how);
      const letters = await scene.parked("a", "a", "a");
      await scene.store.letters.redrive({ consumer }, ann);
      let crashed = false;
      // The process hangs in the middle of its step, and is gone: nothing of it goes on.
      const failpoints = { hit: async (here: Failpoint) => (here === at && !crashed ? ((crashed = true), crash()) : undefined) };
      const crash = (): Promise<never> => {
        void first.stop();
        return Promise.reject(new Error("crashed"));
      };
      const first = scene.process({ failpoints });
      await first.start();
      await scene.pass(3);
      expect(crashed).toBe(true);
      await scene.process().start();
      await scene.pass(40);
      expect(scene.effects()).toEqual(of(letters));
      expect(await scene.letters()).toEqual([]);
    },
  );

  it("are applied once each when two processes of the consumer run, and when the first is stopped in between", async () => {
    const scene = redriveScene(how);
    const letters = await scene.parked(...Array.from({ length: 30 }, (_unused, n) => `a${n % 3}`));
    await scene.store.letters.redrive({ consumer }, ann);
    const handlers = {
      async OrderPlaced({ id }: { id: string }, tx: Parameters<Parameters<typeof scene.store.db.transaction>[0]>[0]) {
        await scene.clock.sleep(100);
        const table = tx.table<number, string>("effects");
        table.set(table.size, `${consumer} ${id}`);
      },
    };
    const [first, second] = [scene.process({ handlers }), scene.process({ handlers })];
    await Promise.all([first.start(), second.start()]);
    await scene.pass(2);
    const stopped = first.stop();
    await scene.pass(60);
    await stopped;
    expect([...scene.effects()].sort()).toEqual([...of(letters)].sort());
    for (const aggregate of ["a0", "a1", "a2"]) {
      const own = letters.filter(({ aggregateId }) => aggregateId === aggregate);
      expect(scene.effects().filter((effect) => own.some(({ id }) => effect.endsWith(` ${id}`)))).toEqual(of(own));
    }
    expect(await scene.letters()).toEqual([]);
  });

  it("of a type without a handler are letters again, and say so", async () => {
    const scene = redriveScene(how);
    const [one] = await scene.parked("a");
    await scene.store.letters.redrive({ consumer }, ann);
    await scene.process({ handlers: { OrderPaid: () => undefined } }).start();
    await scene.pass(4);
    expect(await scene.letters()).toEqual([`${one!.id} there is no handler for OrderPlaced`]);
  });

  it("whose row another program broke are letters again, and the others are applied", async () => {
    const scene = redriveScene(how);
    const [broken, good] = await scene.parked("a", "b");
    const [row] = scene.store.db.letters();
    (row as { envelope: string }).envelope = "{";
    await scene.store.letters.redrive({ consumer }, ann);
    await scene.process().start();
    await scene.pass(4);
    expect(scene.effects()).toEqual(of([good!]));
    expect(await scene.letters()).toEqual([`${broken!.id} the letter's envelope is not what the library wrote`]);
  });

  it("whose row names another event are letters again: the handler would be given what it was not about", async () => {
    const scene = redriveScene(how);
    const [broken, good] = await scene.parked("a", "b");
    const [row] = scene.store.db.letters();
    (row as { envelope: string }).envelope = row!.envelope.replace(broken!.id, good!.id);
    await scene.store.letters.redrive({ consumer }, ann);
    await scene.process().start();
    await scene.pass(4);
    expect(scene.effects()).toEqual(of([good!]));
    expect(await scene.letters()).toEqual([`${broken!.id} the letter's envelope is not what the library wrote`]);
  });

  it("that no handler can be given, and that another program marked as redriven, are letters again", async () => {
    const scene = redriveScene(how);
    const letter = { topic, consumer, error: "no", attempts: 1 };
    const [raw, cut] = [envelope("a"), envelope("b")];
    await scene.store.inbox.park({ ...letter, envelope: raw, raw: Buffer.from("?") });
    await scene.store.inbox.park({ ...letter, envelope: cut, cut: true });
    const redriven: Letters["redriven"] = async () =>
      (await scene.store.letters.list({ limit: 9 })).filter(({ error }) => error === "no").reverse();
    const given: string[] = [];
    await scene.process({ inbox: withLetters(scene.store, { redriven }), handlers: { "*": ({ id }) => void given.push(id) } }).start();
    await scene.pass(4);
    expect(given).toEqual([]);
    expect(await scene.letters()).toEqual([`${raw.id} the message is no event`, `${cut.id} the letter does not hold the whole message`]);
  });

  it("that cannot be read do not keep the others, and are letters again", async () => {
    const scene = redriveScene(how);
    const [large, behind, good] = await scene.parked("a", "a", "b");
    await scene.store.letters.redrive({ consumer }, ann);
    const [first] = await scene.store.letters.redriven(consumer, topic, 1);
    let asked = 0;
    const show: Letters["show"] = async (wanted) => {
      if (wanted !== first!.seq) return scene.store.letters.show(wanted);
      asked += 1;
      throw new Error("invalid memory alloc request size");
    };
    await scene.process({ inbox: withLetters(scene.store, { show }) }).start();
    await scene.pass(10);
    expect(asked, "a database that is away for a moment costs nothing").toBe(3);
    expect(scene.effects()).toEqual(of([good!, behind!]));
    expect(await scene.letters()).toEqual([`${large!.id} invalid memory alloc request size`]);
  });

  it("do not all wait for an aggregate whose letters fail for long", async () => {
    const scene = redriveScene(how);
    const letters = await scene.parked(...Array.from({ length: 100 }, () => "a"), "b");
    const failing = new Set(letters.slice(0, 100).map(({ id }) => id));
    await scene.store.letters.redrive({ consumer }, ann);
    const applied: string[] = [];
    await scene
      .process({
        retry: { delaysMs: [600_000], jitter: 0 },
        handlers: {
          OrderPlaced({ id }) {
            if (failing.has(id)) throw new Error("the carrier is closed");
            applied.push(id);
          },
        },
      })
      .start();
    await scene.pass(10);
    expect(applied).toEqual([letters[100]!.id]);
  });

  it("keep pace with an operator who redrives more than a look takes", async () => {
    const scene = redriveScene(how);
    const letters = await scene.parked(...Array.from({ length: 300 }, (_unused, n) => `a${n % 50}`));
    await scene.store.letters.redrive({ consumer }, ann);
    await scene.process().start();
    await scene.pass(2.5);
    expect(scene.effects()).toHaveLength(letters.length);
  });

  it("end with a drain: what a handler has begun is finished, the rest stays redriven", async () => {
    const scene = redriveScene(how);
    const letters = await scene.parked("a", "a", "a");
    await scene.store.letters.redrive({ consumer }, ann);
    const begun: string[] = [];
    const slow = scene.process({
      handlers: {
        async OrderPlaced({ id }, tx) {
          begun.push(id);
          await scene.clock.sleep(5_000);
          tx.table<number, string>("effects").set(0, `${consumer} ${id}`);
        },
      },
    });
    await slow.start();
    await scene.pass(2);
    let left: readonly string[] | null = null;
    const { leave } = scene.store.inbox;
    scene.store.inbox.leave = async (seat) => {
      left ??= scene.effects();
      return leave(seat);
    };
    const drained = slow.drain();
    await scene.pass(8);
    await drained;
    expect(begun).toEqual([letters[0]!.id]);
    expect(left, "nobody else is let in before").toEqual(of([letters[0]!]));
    expect(await scene.letters()).toEqual(letters.slice(1).map(({ id }) => `${id} no such account *`));
  });

  it.each(["redriven", "show"] as const)("keep neither a stop nor a drain waiting when the database never answers %s", async (silent) => {
    const scene = redriveScene(how);
    await scene.parked("a");
    await scene.store.letters.redrive({ consumer }, ann);
    const asked: string[] = [];
    const hang = (end: string) => (): Promise<never> => {
      asked.push(end);
      return new Promise(() => undefined);
    };
    for (const end of ["drain", "stop"] as const) {
      const subscriber = scene.process({ inbox: withLetters(scene.store, { [silent]: hang(end) }) });
      await subscriber.start();
      await scene.pass(20);
      expect(asked).toContain(end);
      let ended = false;
      void subscriber[end]().then(() => (ended = true));
      await scene.pass(20);
      expect(ended, end).toBe(true);
    }
  });

  it("go on after a look that failed", async () => {
    const scene = redriveScene(how);
    const letters = await scene.parked("a");
    let fails = 20;
    const redriven: Letters["redriven"] = async (...asked) => {
      if (fails-- > 0) throw new Error("the connection is gone");
      return scene.store.letters.redriven(...asked);
    };
    await scene.store.letters.redrive({ consumer }, ann);
    await scene.process({ inbox: withLetters(scene.store, { redriven }) }).start();
    await scene.pass(40);
    expect(scene.effects()).toEqual(of(letters));
    expect(scene.of("subscriber.trouble")[0]).toMatchObject({ step: "redrive", topic });
    expect(scene.of("subscriber.recovered")).toMatchObject([{ step: "redrive", topic }]);
  });
});

describe("a late copy of an event that was parked", () => {
  it("is acknowledged and not applied behind its followers, before and after the letter is redriven", async () => {
    const scene = redriveScene();
    const [one] = await scene.parked("a");
    const follower = envelope("a");
    await scene.process().start();
    await scene.publish(follower, one!);
    await scene.pass(3);
    expect(scene.effects()).toEqual(of([follower]));
    expect(await scene.letters()).toHaveLength(1);
    await scene.store.letters.redrive({ consumer }, ann);
    await scene.pass(3);
    await scene.publish(one!);
    await scene.pass(3);
    expect(scene.effects()).toEqual(of([follower, one!]));
    expect(await scene.broker.purge(new Date(scene.clock.now() + 1)), "all of them are acknowledged").toBe(4);
  });

  it("stays unapplied once the letter is discarded", async () => {
    const scene = redriveScene();
    const [one] = await scene.parked("a");
    await scene.store.letters.discard({ consumer }, ann);
    await scene.process().start();
    await scene.publish(one!);
    await scene.pass(3);
    expect([scene.effects(), await scene.letters()]).toEqual([[], []]);
  });
});

describe("live traffic", () => {
  it("of other aggregates goes on while letters fail and wait for their next attempt", async () => {
    const scene = redriveScene();
    const letters = await scene.parked(...Array.from({ length: 80 }, (_unused, n) => `a${n}`));
    const failing = new Set(letters.map(({ id }) => id));
    await scene.store.letters.redrive({ consumer }, ann);
    const applied: string[] = [];
    await scene
      .process({
        concurrency: 2,
        retry: { delaysMs: [3_600_000], jitter: 0 },
        handlers: {
          OrderPlaced({ id }) {
            if (failing.has(id)) throw new Error("the carrier is closed");
            applied.push(id);
          },
        },
      })
      .start();
    await scene.pass(10);
    const live = Array.from({ length: 20 }, (_unused, n) => envelope(`live-${n % 4}`));
    await scene.publish(...live);
    await scene.pass(5);
    expect([...applied].sort()).toEqual(live.map(({ id }) => id).sort());
  });

  it("does not wait for a letter whose handler is slow", async () => {
    const scene = redriveScene();
    const [slow] = await scene.parked("a");
    await scene.store.letters.redrive({ consumer }, ann);
    const applied: string[] = [];
    const inbox = {
      ...scene.store,
      // The memory store runs one transaction at a time; a server runs them side by side.
      inbox: {
        ...scene.store.inbox,
        once: async (...[{ id }, , work]: Parameters<typeof scene.store.inbox.once>) => (
          await work({} as never, new Set([id]), () => ({}) as never),
          "done" as const
        ),
      },
    };
    await scene
      .process({
        inbox,
        handlers: {
          async OrderPlaced({ id }) {
            if (id === slow!.id) await scene.clock.sleep(25_000);
            applied.push(id);
          },
        },
      })
      .start();
    await scene.pass(2);
    const live = ["b", "c"].map((aggregate) => envelope(aggregate));
    await scene.publish(...live);
    await scene.pass(3);
    expect(applied).toEqual(live.map(({ id }) => id));
  });
});

describe("an event that fails while its letter is redriven", () => {
  it("is refused for good by fatal at its first attempt", async () => {
    const scene = redriveScene();
    const [one] = await scene.parked("a");
    await scene.store.letters.redrive({ consumer }, ann);
    const OrderPlaced = (): never => {
      throw fatal("never");
    };
    await scene.process({ retry: { delaysMs: [1, 1] }, handlers: { OrderPlaced } }).start();
    await scene.pass(3);
    expect(await scene.letters()).toEqual([`${one!.id} never`]);
  });
});
