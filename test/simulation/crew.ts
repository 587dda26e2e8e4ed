import { fork, relayKnobs, type RelayKnobs } from "./plan.ts";
import { startRelay, type RelayLife } from "./relays.ts";
import { startSubscriber, type Failures, type SubscriberLife } from "./subscribers.ts";
import { startWriter, type Writer } from "./writers.ts";
import type { World } from "./world.ts";

/** A place that one process after the other fills. */
export interface Slot<Life> {
  life: Life | null;
  /** Lives so far. */
  lives: number;
  readonly start: () => void;
}

/** Whoever runs: each ends, and comes again under another name. */
export interface Crew {
  readonly relays: Slot<RelayLife>[];
  readonly subscribers: Slot<SubscriberLife>[];
  readonly writers: Writer[];
  /** One more than planned. */
  joinRelay(): Slot<RelayLife>;
  joinSubscriber(consumer: number): Slot<SubscriberLife>;
  /** The windows of all relays that live. */
  windows(): number;
}

export const consumerName = (index: number): string => `consumer-${index}`;
/** As a supervisor would. */
const restartMs = 300;

export function startCrew(world: World): Crew {
  const { plan, scheduler } = world;
  const { knobs } = plan;
  const failures: Failures = new Map();
  const relays: Slot<RelayLife>[] = [];
  const subscribers: Slot<SubscriberLife>[] = [];

  const slot = <Life>(all: Slot<Life>[], begin: (life: number, ended: () => void) => Life): Slot<Life> => {
    const made: Slot<Life> = {
      life: null,
      lives: 0,
      start() {
        if (made.life !== null) return;
        const life: Life = begin(++made.lives, () => {
          if (made.life !== life) return;
          made.life = null;
          scheduler.after(restartMs, made.start);
        });
        made.life = life;
      },
    };
    all.push(made);
    return made;
  };
  const relay = (given: RelayKnobs): Slot<RelayLife> => {
    const index = relays.length;
    const made = slot(relays, (life, ended) => startRelay(world, `relay-${index}.${life}`, given, ended));
    made.start();
    return made;
  };
  const subscriber = (consumer: number): Slot<SubscriberLife> => {
    const index = subscribers.length;
    const made = slot(subscribers, (life, ended) =>
      startSubscriber(world, consumerName(consumer), `subscriber-${index}.${life}`, failures, ended),
    );
    made.start();
    return made;
  };

  for (const each of knobs.relays) relay(each);
  knobs.subscribers.forEach((processes, consumer) => {
    for (let i = 0; i < processes; i++) subscriber(consumer);
  });
  const writers = [0, 1, 2].map((index) => startWriter(world, `writer-${index}`));
  return {
    relays,
    subscribers,
    writers,
    joinRelay: () => relay(relayKnobs(fork(plan.seed, `joined relay ${relays.length}`))),
    joinSubscriber: subscriber,
    windows: () => relays.reduce((sum, { life }) => sum + (life?.window ?? 0), 0),
  };
}
