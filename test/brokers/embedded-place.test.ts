import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createPlace, type Mark } from "../../src/brokers/embedded/place.ts";
import { quiet } from "../../src/conformance/corpus.ts";
import type { Delivery } from "../../src/contracts/source.ts";
import { many, never, publish, take, topic, topics, using } from "./embedded.ts";
import { eventually, execute, freshPath, sql } from "./files.ts";

const idsOf = (of: readonly { readonly envelope: { readonly id: string } }[]): string[] => of.map(({ envelope }) => envelope.id);

async function nextOf(deliveries: AsyncIterator<Delivery>): Promise<Delivery> {
  const next = await deliveries.next();
  if (next.done === true) throw new Error("the iteration ended");
  return next.value;
}

describe("a consumer's place", () => {
  test("after any crashes: what is not acknowledged is read again, in order, and what is acknowledged is not", () => {
    const life = fc.record({ reads: fc.nat({ max: 40 }), acks: fc.array(fc.nat(), { maxLength: 40 }), noted: fc.nat({ max: 40 }) });
    fc.assert(
      fc.property(
        fc.array(life, { maxLength: 6 }),
        fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 40, maxLength: 40 }),
        (lives, steps) => {
          const log = steps.map((_, n) => steps.slice(0, n + 1).reduce((sum, step) => sum + step, 0));
          const acked = new Set<number>();
          let mark: Mark = { offset: 0, beyond: [] };
          for (const { reads, acks, noted } of lives) {
            const place = createPlace(JSON.parse(JSON.stringify(mark)) as Mark);
            const open = log.slice(0, reads).flatMap((offset) => {
              const ack = place.read(offset);
              return ack === null ? [] : [{ offset, ack }];
            });
            expect(open.map(({ offset }) => offset)).toEqual(log.slice(0, reads).filter((offset) => !acked.has(offset)));
            // What is acknowledged after the last mark was written is lost with the process.
            for (const [n, pick] of acks.entries()) {
              if (open.length === 0 || n >= noted) break;
              const { offset, ack } = open[pick % open.length]!;
              ack();
              acked.add(offset);
              mark = place.mark();
            }
          }
        },
      ),
    );
  });

  test("is kept over a crash: while one event waits, nothing that was acknowledged behind it comes again", async () => {
    const path = freshPath();
    const events = many(500);
    await using({ path }, async (dying) => {
      await publish(dying, events);
      const deliveries = dying.receive({ consumer: "reader", topics: [topic], prefetch: 3, waiting: 10 }, never)[Symbol.asyncIterator]();
      const waiting: string[] = [];
      for (let n = 0; n < 500; n++) {
        const delivery = await nextOf(deliveries);
        if (n % 100 === 0) {
          waiting.push(delivery.envelope.id);
          delivery.aside();
        } else await delivery.ack();
      }
      await eventually("the acks are written", () =>
        String(sql(path, "SELECT beyond FROM waybill_broker_consumers")[0]?.["beyond"]).includes("500"),
      );
      // The first is still open, as the connection of a process that was killed may be.
      await using({ path }, async (next) => {
        const again = await take(next, 5);
        expect(idsOf(again)).toEqual(waiting);
        await again[0]!.ack();
        await again[2]!.ack();
      });
      expect(sql(path, "SELECT offset, beyond FROM waybill_broker_consumers")).toEqual([
        { offset: 100, beyond: "[[102,300],[302,400],[402,500]]" },
      ]);
    });
    await using({ path }, async (last) => {
      const [one, ...rest] = await take(last, 3, { prefetch: 2_000 });
      expect(idsOf([one!, ...rest])).toEqual([events[100]!.id, events[300]!.id, events[400]!.id]);
      await one!.ack();
      expect(sql(path, "SELECT offset FROM waybill_broker_consumers")).toEqual([{ offset: 300 }]);
      for (const delivery of rest) await delivery.ack();
      await publish(last, events.slice(0, 1));
      const deliveries = last.receive({ consumer: "reader", topics: [topic], prefetch: 5 }, never)[Symbol.asyncIterator]();
      expect((await nextOf(deliveries)).envelope.id).toBe(events[0]!.id);
      await quiet(100, "an acknowledged event came again", deliveries.next());
      await deliveries.return!();
    });
  });

  test.each(["", "no JSON", "{}", "[1]", "[[3,2]]", "[[2,3],[3,4]]", '[["2","3"]]', "[[2]]", "null"])(
    "whose record %j cannot be read goes by the offset alone",
    async (beyond) => {
      const path = freshPath();
      await using({ path }, async (broker) => {
        const events = many(6);
        await publish(broker, events);
        await (await take(broker, 1))[0]!.ack();
        execute(path, `UPDATE waybill_broker_consumers SET beyond = '${beyond}'`);
        expect(idsOf(await take(broker, 5))).toEqual(events.slice(1).map(({ id }) => id));
      });
    },
  );

  test("counts as lag only what is not acknowledged, also behind a gap and between another topic's messages", async () => {
    await using({ path: freshPath() }, async (broker) => {
      for (let n = 0; n < 6; n++) {
        await publish(broker, many(1));
        await publish(broker, many(1), topics[1]);
      }
      const lag = (): Promise<number | null> => broker.lag!(topic, never, "reader");
      expect(await lag()).toBeNull();
      const deliveries = broker.receive({ consumer: "reader", topics: [topic], prefetch: 9 }, never)[Symbol.asyncIterator]();
      const got: Delivery[] = [];
      while (got.length < 6) got.push(await nextOf(deliveries));
      expect(await lag()).toBe(6);
      for (const n of [0, 2, 3, 5]) await got[n]!.ack();
      await expect.poll(lag, { timeout: 15_000 }).toBe(2);
      for (const n of [1, 4]) await got[n]!.ack();
      await expect.poll(lag, { timeout: 15_000 }).toBe(0);
      await deliveries.return?.();
      expect(await broker.lag!(topics[1], never, "reader")).toBeNull();
    });
  });
});
