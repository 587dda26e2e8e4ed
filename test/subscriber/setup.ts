import { onTestFinished } from "vitest";
import { seededRandom } from "../../src/core/random.ts";
import type { Service } from "../../src/core/service.ts";
import { createSubscriber, type SubscriberOptions } from "../../src/subscriber/subscriber.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import { fakeBroker, fakeInbox, watched, type FakeBroker, type FakeInbox, type FakeTx, type Watched } from "./fakes.ts";

interface Setup extends Watched {
  readonly clock: ManualClock;
  readonly broker: FakeBroker;
  readonly inbox: FakeInbox;
  /** A new process: same broker, same database. Stopped when the test ends. */
  subscriber(options: Partial<SubscriberOptions<FakeTx>>): Service;
}

export function setup({ assign = true } = {}): Setup {
  const clock = manualClock(1_700_000_000_000);
  const broker = fakeBroker({ assign }, clock);
  const inbox = fakeInbox(clock);
  const events = watched();
  let made = 0;
  return {
    ...events,
    clock,
    broker,
    inbox,
    subscriber(options) {
      made += 1;
      const service = createSubscriber<FakeTx>({
        consumer: "stock",
        source: broker.both,
        inbox,
        topics: ["order.events"],
        handlers: { OrderPlaced: (event, tx) => tx.write(event.id) },
        retry: { jitter: 0 },
        owner: `process-${made}`,
        clock,
        random: seededRandom(made),
        observe: events.observe,
        ...options,
      });
      onTestFinished(async () => {
        const stopped = service.stop();
        await clock.advance(10_000);
        await stopped;
      });
      return service;
    },
  };
}
