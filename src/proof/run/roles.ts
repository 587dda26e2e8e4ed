import type { Sink } from "../../contracts/sink.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import type { PathEvent } from "../../core/path-events.ts";
import { createRelay } from "../../relay/create-relay.ts";
import { deadLetterTopic } from "../../subscriber/dead-letter-topic.ts";
import { createSubscriber } from "../../subscriber/subscriber.ts";
import { running, type Running } from "../crew/child.ts";
import type { Point, Points } from "../crew/failpoints.ts";
import type { Recorder } from "../judge/history.ts";
import { openRunBroker, type Access } from "./access.ts";
import { echo, isEchoed } from "./echo.ts";
import { openGround, topicsOf, type Ground } from "./ground.ts";
import { halved, refusal, refusing, repeating } from "./faulty-sinks.ts";
import { recordInbox, recordRelay, recordSource } from "./recorded.ts";
import type { RelayTask, SubscriberTask, Task, WriterTask } from "./task.ts";
import { aggregateName, countHeader } from "./workload.ts";
import { write } from "./writer.ts";

/** What a worker gets from its process. */
export interface Post {
  readonly access: Access;
  readonly recorder: Recorder;
  readonly failpoints: Points;
  /** Counts this many more as done. */
  did(count: number): void;
  /** A line for its log. */
  say(line: object): void;
}

export function play(task: Task, post: Post): Promise<Running> {
  switch (task.role) {
    case "writer":
      return runWriter(task, post);
    case "relay":
      return runRelay(task, post);
    case "subscriber":
      return runSubscriber(task, post);
  }
}

async function runWriter(task: WriterTask, post: Post): Promise<Running> {
  const ground = await openGround(post.access, task.place);
  const ending = new AbortController();
  const stopped = write({ task, ground, clock: skewed(systemClock, task.skewMs ?? 0), ...post }, ending.signal);
  return {
    stopped,
    async drain() {
      ending.abort();
      await stopped;
      await ground[Symbol.asyncDispose]();
    },
  };
}

/** Path events that the log leaves out: ordinary work is in the history. */
const quiet = new Set<PathEvent["type"]>(["relay.claimed", "relay.published", "subscriber.handled"]);

async function runRelay(task: RelayTask, post: Post): Promise<Running> {
  const ground = await openGround(post.access, task.place);
  const { broker, ...rest } = openRunBroker(post.access, task.place);
  const records = recordRelay(post.recorder, skewed(systemClock, task.skewMs ?? 0), post.did);
  const poison = new Set(task.poison ?? []);
  const poisoned = refusal("the broker refuses this event for what it is");
  const willing: Sink =
    poison.size === 0 ? broker : refusing(broker, ({ envelope }) => (poison.has(aggregateName(envelope)) ? poisoned : null));
  const whole = task.again === undefined ? willing : repeating(willing, task.again);
  const sink = comesBy(task, "mid-batch") ? halved(whole, post.failpoints) : whole;
  const { store } = ground;
  const relay = createRelay({
    store: { ...store, outbox: records.outbox(store.outbox), leases: records.leases(store.leases) },
    sink: records.sink(sink),
    relayId: task.name,
    failpoints: post.failpoints,
    clock: records.clock,
    observe: (event) => quiet.has(event.type) || post.say(event),
    ...task.options,
  });
  return await running(relay, [rest, ground]);
}

async function runSubscriber(task: SubscriberTask, post: Post): Promise<Running> {
  const { consumer, place, echoes = 0 } = task;
  const ground = await openGround(post.access, place);
  const { broker, ...rest } = openRunBroker(post.access, place);
  const inbox = recordInbox(ground.store.inbox, post.recorder, () => post.did(1));
  const subscriber = createSubscriber({
    ...{ consumer, topics: topicsOf(place), seatMs: task.seatMs, owner: task.name },
    source: recordSource(broker, post.recorder, consumer),
    inbox: { inbox },
    deadLetters: deadLetterTopic({ sink: broker }),
    handlers: {
      "*": async (event, tx) => {
        await apply(ground, tx, { consumer, ...event });
        if (echoes > 0 && isEchoed(event, echoes)) await echo({ task, ground, recorder: post.recorder }, tx, event);
      },
    },
    ...task.options,
    failpoints: post.failpoints,
    clock: skewed(systemClock, task.skewMs ?? 0),
    observe: (event) => quiet.has(event.type) || post.say(event),
  });
  return await running(subscriber, [rest, ground]);
}

const comesBy = ({ failpoints = [] }: Task, point: Point): boolean => failpoints.some(({ at }) => at === point);

interface Applied {
  readonly consumer: string;
  readonly topic: string;
  readonly id: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** The aggregate's row is locked first, so that effects are numbered in the order of their commits. */
async function apply({ within, tables }: Ground, tx: unknown, event: Applied): Promise<void> {
  const ask = within(tx);
  const { consumer, topic, id, headers } = event;
  const aggregate = aggregateName(event);
  const n = Number(headers[countHeader]);
  await ask(`UPDATE ${tables.applied} SET n = n + 1 WHERE consumer = ? AND aggregate = ?`, [consumer, aggregate]);
  await ask(`INSERT INTO ${tables.effects} (consumer, topic, id, aggregate, n) VALUES (?, ?, ?, ?, ?)`, [
    consumer,
    topic,
    id,
    aggregate,
    n,
  ]);
}

/** A machine whose wall clock is wrong. Its monotonic clock is right. */
function skewed(clock: Clock, byMs: number): Clock {
  return byMs === 0 ? clock : { ...clock, now: () => clock.now() + byMs };
}
