import { embedded } from "../../src/brokers/embedded/index.ts";
import type { Outgoing } from "../../src/contracts/sink.ts";

/** What another process on the same file is to do. */
export type Request =
  | { readonly role: "publisher"; readonly path: string; readonly name: string; readonly batches: number; readonly size: number }
  | { readonly role: "reader"; readonly path: string; readonly name: string; readonly prefetch: number };

const request = JSON.parse(process.argv[2]!) as Request;
const broker = embedded({ path: request.path, lockTimeoutMs: 15_000 });
const tell = (message: object): Promise<unknown> => new Promise((resolve) => process.send!(message, resolve));

if (request.role === "publisher") await publishAll(request);
else await receiveAll(request);
await broker[Symbol.asyncDispose]();
process.disconnect();

/** Each aggregate's events carry 1, 2, 3 … */
async function publishAll({ name, batches, size }: Request & { role: "publisher" }): Promise<void> {
  const counters = new Map<string, number>();
  for (let batch = 0; batch < batches; batch++) {
    const messages = Array.from({ length: size }, (_, i): Outgoing => {
      const aggregateId = `${name}-${i % 5}`;
      const n = (counters.get(aggregateId) ?? 0) + 1;
      counters.set(aggregateId, n);
      const event = {
        aggregateType: "Order",
        aggregateId,
        type: "Counted",
        eventVersion: 1,
        contentType: "text/plain",
        idempotencyKey: null,
      };
      const identity = { id: `${name}/${batch}/${i}`, seq: BigInt(batch * size + i + 1), createdAt: new Date() };
      const content = { data: Buffer.from(String(n)), headers: { batch: `${name}/${batch}` } };
      return { topic: "order.events", source: "/test", envelope: { ...event, ...identity, ...content } };
    });
    for (const result of await broker.publish(messages, new AbortController().signal)) {
      if (result.status !== "stored") throw new Error(`${result.status}: ${"error" in result ? result.error.message : ""}`);
    }
    await tell({ batch });
  }
}

async function receiveAll({ name, prefetch }: Request & { role: "reader" }): Promise<void> {
  const ending = new AbortController();
  process.on("message", () => ending.abort());
  for await (const delivery of broker.receive({ consumer: name, topics: ["order.events"], prefetch }, ending.signal)) {
    const { id, aggregateId, data } = delivery.envelope;
    // The parent has it before it is acknowledged, so that what a killed reader acknowledged is known.
    await tell({ id, aggregateId, n: Number(Buffer.from(data).toString()) });
    await delivery.ack();
  }
}
