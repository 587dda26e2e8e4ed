import { readFileSync } from "node:fs";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import type { Delivery, Subscription } from "../../src/contracts/source.ts";

/** A subscriber in a process of its own, whose memory is looked at. */
export interface Request {
  readonly url: string;
  readonly subscription: Subscription;
  /** So many messages in all. */
  readonly messages: number;
}

export interface Report {
  readonly received: number;
  /** The most bytes of data that were out at once, and the most that the process had in memory. */
  readonly out: number;
  readonly peak: number;
}

const { url, subscription, messages } = JSON.parse(process.argv[2]!) as Request;
const broker = url.startsWith("amqp") ? rabbitmq({ url, timeoutMs: 20_000 }) : kafka({ url, timeoutMs: 20_000 });
const deliveries = broker.receive(subscription, new AbortController().signal)[Symbol.asyncIterator]();
const inHand: Delivery[] = [];
let received = 0;
let out = 0;
let most = 0;
let idle = 0;
let waiting: ReturnType<typeof deliveries.next> | null = null;

/** The next, or null when none comes for a while: as many are out as may be. */
async function next(): Promise<Delivery | null> {
  waiting ??= deliveries.next();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<null>((resolve) => (timer = setTimeout(() => resolve(null), 200)));
  const come = await Promise.race([waiting, late]);
  clearTimeout(timer);
  if (come === null) return null;
  waiting = null;
  return come.value as Delivery;
}

while (received < messages) {
  const delivery = await next();
  if (delivery !== null) {
    received += 1;
    out += delivery.envelope.data.length;
    most = Math.max(most, out);
    inHand.push(delivery);
    continue;
  }
  if (inHand.length === 0 && (idle += 1) > 100) break; // 20 seconds
  out = 0;
  for (const one of inHand.splice(0)) await one.ack();
}
for (const one of inHand) await one.ack();
await deliveries.return?.();
await broker[Symbol.asyncDispose]();
/** Not `resourceUsage().maxRSS`: that begins with what the process which started this one had in memory. */
const peakKb = Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))![1]);
const report: Report = { received, out: most, peak: peakKb * 1_024 };
await new Promise((resolve) => process.send!(report, resolve));
process.disconnect();
