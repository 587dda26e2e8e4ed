// Messages as the relay sends them: the same attributes, and 300 bytes.
import { Buffer } from "node:buffer";
import { randomUUID } from "node:crypto";

const time = new Date().toISOString();
export const data = Buffer.from(`{"text":"${"x".repeat(289)}"}`);
let made = 0;

export function nextMessage(task) {
  const key = `order-${Math.floor(Math.random() * 20_000)}`;
  const id = randomUUID();
  const attributes = {
    specversion: "1.0",
    id,
    type: "OrderPlaced",
    source: "/waybill",
    subject: key,
    partitionkey: key,
    time,
    datacontenttype: "application/json",
    aggregatetype: task.schema,
    eventversion: "1",
    sequence: String(++made),
  };
  return { id, key, attributes };
}

export const messages = (task, count) => Array.from({ length: count }, () => nextMessage(task));

/** As much in flight as a relay has by default: three batches of 500. */
export async function pump(total, send) {
  let left = total;
  const lane = async () => {
    while (left > 0) {
      const count = Math.min(500, left);
      left -= count;
      await send(count);
    }
  };
  await Promise.all([lane(), lane(), lane()]);
}
