import type { Source } from "../../src/contracts/source.ts";
import type { Failpoint } from "../../src/core/failpoints.ts";
import type { Service } from "../../src/core/service.ts";
import { fatal } from "../../src/subscriber/fatal.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { openClient, type Client } from "./client.ts";
import { aggregateTypes, hasDeadTopics, sharedTopic } from "./plan.ts";
import type { Process } from "./scheduler.ts";
import { shaOf, type World } from "./world.ts";

export interface SubscriberLife {
  readonly process: Process;
  readonly service: Service;
  crashAt: Failpoint | null;
}

export interface Payload {
  readonly n: number;
  readonly kind: string;
}

export interface Applied {
  readonly consumer: string;
  readonly topic: string;
  readonly id: string;
  readonly aggregate: string;
  readonly n: number;
}

export const topicsOf = ({ plan }: World): readonly string[] => [
  ...aggregateTypes.map((type) => `${type.toLowerCase()}.events`),
  ...(plan.knobs.spanning ? [sharedTopic] : []),
];

/** How often each event's handler has failed, at each consumer. */
export type Failures = Map<string, number>;

export function startSubscriber(world: World, consumer: string, name: string, failures: Failures, ended: () => void): SubscriberLife {
  const { scheduler, inbox, plan } = world;
  const process = scheduler.process(name);
  const random = world.random(`${name} handles`);
  const store = inbox.open(process, {
    committed(tx) {
      for (const effect of tx.effects as Applied[])
        world.history.push({ at: scheduler.now, process: name, phase: "ok", op: "effect", consumer, id: effect.id });
    },
  });
  const client = openClient(scheduler, world.random(`${name} links`), world.broker, process);
  const life: SubscriberLife = {
    process,
    crashAt: null,
    service: createSubscriber({
      consumer,
      source: recordedSource(world, process, consumer, client),
      inbox: store,
      topics: topicsOf(world),
      ...(hasDeadTopics(plan.seed) && { deadTopic: "{topic}.dead" }),
      handlers: {
        async "*"(event, tx) {
          const { n, kind } = event.payload as Payload;
          const times = `${consumer} ${event.id}`;
          const failed = failures.get(times) ?? 0;
          if (random.next() < 0.3) await process.clock.sleep(random.next() < 0.03 ? 1_500 : random.next() * 10);
          // The second kind is given up after its fourth failure; another copy of it would do.
          if ((kind === "fails-twice" && failed < 2) || (kind === "fails-too-often" && failed < 4)) {
            failures.set(times, failed + 1);
            world.fault("handler-fails", event.id, 0, { topics: [] })();
            throw new Error("it fails now");
          }
          if (kind === "fatal") {
            world.fault("handler-fails", event.id, 0, { topics: [] })();
            throw fatal(new Error("it fails always"));
          }
          const { id, aggregateType, aggregateId, topic } = event;
          tx.effect({ consumer, topic, id, aggregate: `${aggregateType} ${aggregateId}`, n } satisfies Applied);
        },
      },
      retry: { delaysMs: [100, 300, 600] },
      concurrency: 4,
      batch: [1, 3, 8][plan.seed % 3]!,
      prefetch: 30,
      handlerTimeoutMs: 3_000,
      seatMs: plan.knobs.seatMs,
      owner: name,
      clock: process.clock,
      random: world.random(name),
      observe: world.observe(process),
      failpoints: {
        hit(at) {
          if (life.crashAt !== at) return;
          process.crash();
          return new Promise<never>(() => undefined);
        },
      },
    }),
  };
  const end = (): void => {
    if (process.alive) ended();
  };
  life.service.start().catch(() => undefined);
  life.service.stopped.then(end, end);
  return life;
}

/** With everything that a sink has beside it, for the letters. */
function recordedSource({ record }: World, process: Process, consumer: string, client: Client): Source {
  return {
    ...client,
    receive(subscription, signal) {
      const deliveries = client.receive(subscription, signal);
      return {
        [Symbol.asyncIterator]() {
          const iterator = deliveries[Symbol.asyncIterator]();
          return {
            async next() {
              const next = await iterator.next();
              if (next.done === true) return next;
              const { topic, envelope, ack } = next.value;
              const { id } = envelope;
              record(process, "ok", { op: "deliver", consumer, topic, id, sha: shaOf(envelope.data) });
              return {
                done: false as const,
                value: {
                  ...next.value,
                  async ack() {
                    await ack();
                    record(process, "ok", { op: "ack", consumer, id });
                  },
                },
              };
            },
            return: async () => iterator.return?.() ?? { done: true as const, value: undefined },
          };
        },
      };
    },
  };
}
