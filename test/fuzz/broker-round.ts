import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { messagesOf, type BrokerName, type Message } from "./messages.ts";
import type { Opened, Place } from "./publishers.ts";
import type { Report } from "./target.ts";
import { boundMs, Failed, nothingUncaught, reasonOf, within } from "./watch.ts";

const hostilePerRound = 12;
const controlsPerRound = 6;
const consumer = "fuzz";
const never = new AbortController().signal;

let topics = 0;

export const planOf = (seed: number, broker: BrokerName): readonly Message[] => messagesOf(seed, broker, hostilePerRound);

/** Hostile messages among good ones, with a subscriber at work: the good ones are handled in time, and nothing is left behind. */
export function brokerRound(place: Place, messages: readonly Message[]): Promise<Report> {
  return nothingUncaught(() => playOn(place, messages, `fuzz-${process.pid}-${++topics}.events`));
}

async function playOn(place: Place, messages: readonly Message[], topic: string): Promise<Report> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-fuzz-"));
  await using store = sqlite({ path: join(folder, "inbox.db") });
  await using writer = place.open();
  await using source = place.open();
  try {
    await store.schema.migrate();
    await writer.provision([topic], [consumer]);
    const seen = listen();
    const handled = new Set<string>();
    const subscriber = createSubscriber({
      ...{ consumer, source, inbox: store, topics: [topic], observe: seen.observe, seatMs: 5_000 },
      retry: { delaysMs: [20, 40] },
      handlers: { "*": (event) => void handled.add(event.id) },
    });
    await subscriber.start();
    let [refused, controls] = [0, 0];
    const ids: string[] = [];
    try {
      for (const [n, message] of messages.entries()) {
        if (n % Math.ceil(messages.length / controlsPerRound) === 0) ids.push(await control(writer, topic, ++controls));
        await place.publish(topic, message).catch(() => refused++);
      }
      ids.push(await control(writer, topic, ++controls));
      await within(
        boundMs,
        () => `good messages are not handled${seen.told()}`,
        async () => ids.every((id) => handled.has(id)),
      );
      const all = messages.length - refused + ids.length;
      await within(
        boundMs,
        () => `${all - seen.ends()} of ${all} messages do not show${seen.told()}`,
        async () => seen.ends() >= all,
      );
    } finally {
      let ended = false;
      void subscriber.drain().then(() => (ended = true));
      await within(
        boundMs,
        () => `the subscriber does not end${seen.told()}`,
        async () => ended,
      );
    }
    await within(
      boundMs,
      () => `messages are left that nobody acknowledged${seen.told()}`,
      async () => ((await place.left(topic, consumer)) ?? 0) === 0,
    );
    return { refused, taken: messages.length - refused };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function control(writer: Opened, topic: string, n: number): Promise<string> {
  const envelope = sampleEvent({ aggregateId: `control-${n}` });
  const [result] = await writer.publish([{ topic, source: "/control", envelope }], never);
  if (result?.status !== "stored") throw new Failed(`a good message is not stored: ${reasonOf((result as { error?: unknown })?.error)}`);
  return envelope.id;
}

/** Every end that a message can come to is a path event. */
function listen(): { observe(event: PathEvent): void; ends(): number; told(): string } {
  let ends = 0;
  const troubles: string[] = [];
  return {
    observe(event) {
      if (event.type === "subscriber.handled" || event.type === "subscriber.ignored" || event.type === "subscriber.died") ends += 1;
      if (event.type === "subscriber.trouble") troubles.push(`${event.step}: ${event.error}`);
    },
    ends: () => ends,
    told: () => (troubles.length === 0 ? "" : `; the subscriber says, ${troubles.length} times: ${troubles.at(-1)!.slice(0, 300)}`),
  };
}

/** One message alone that still fails. */
export async function shrinkMessages(place: Place, messages: readonly Message[]): Promise<Message | null> {
  const deadline = performance.now() + 90_000;
  for (const message of messages) {
    if (performance.now() > deadline) return null;
    const held = await brokerRound(place, [message]).then(
      () => true,
      () => false,
    );
    if (!held) return message;
  }
  return null;
}
