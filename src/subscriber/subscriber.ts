import { systemClock, type Clock } from "../core/clock.ts";
import { show, WaybillError } from "../core/errors.ts";
import { noFailpoints, type Failpoints } from "../core/failpoints.ts";
import { uuidv7 } from "../core/ids.ts";
import { checkOptions, positive, suggestion, whole } from "../core/options.ts";
import { observerOf, type ObserveOption } from "../core/observer.ts";
import { systemRandom, type Random } from "../core/random.ts";
import { retrySchedule, type RetryOptions } from "../core/retry.ts";
import { createService, type Service } from "../core/service.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Inbox } from "../contracts/inbox.ts";
import type { Letters } from "../contracts/letters.ts";
import type { Source } from "../contracts/source.ts";
import type { DeadTopic } from "./dead-letter-topic.ts";
import type { Path } from "./persist.ts";
import { decode, schemaIn, type Handler, type Handlers, type Schemas, type SubscriberEvent } from "./event.ts";
import { letterPlace } from "./letters.ts";
import { subscribe, type Subscribe } from "./subscribe.ts";
import { createTroubles } from "./trouble.ts";

export interface SubscriberOptions<InboxTx, Tx = InboxTx, Events extends Schemas = Schemas> {
  /** The name under which events count as handled. Several processes may share it: each event has one effect among them. */
  readonly consumer: string;
  readonly source: Source;
  /** Where marks and effects are kept: a store, or anything that has an inbox. With `letters`, those that are redriven are applied too. */
  readonly inbox: { readonly inbox: Inbox<InboxTx>; readonly letters?: Letters };
  readonly topics: readonly string[];
  readonly handlers: Handlers<Events, NoInfer<Tx>>;
  /** Payloads are checked and typed by these; one that does not fit is parked. */
  readonly events?: Events;
  /** From the inbox's transaction to the handle that handlers are given. @default the inbox's own */
  readonly tx?: (tx: InboxTx) => Tx;
  /** Where letters go instead. What this place refuses for good goes to the inbox all the same. @default the inbox's database */
  readonly deadLetters?: DeadLetters;
  /** A topic on the source's broker for letters, such as "{topic}.dead". @default none: the inbox's database keeps them */
  readonly deadTopic?: DeadTopic;
  readonly retry?: RetryOptions;
  /** How many aggregates are handled side by side. @default 16 */
  readonly concurrency?: number;
  /** How many deliveries of a topic may be unacknowledged, apart from those that wait. @default 16 for each of `concurrency` */
  readonly prefetch?: number;
  /**
   * How many bytes of a topic's deliveries may be unacknowledged, apart from those that wait. As many more may wait, where one message counts
   * as half of them at most. @default 33554432 (32 MiB)
   */
  readonly prefetchBytes?: number;
  /**
   * How many more may wait, in memory, because an event of their aggregate has failed or takes longer than a second. When
   * as many do, the topic's other aggregates wait too, and `subscriber.full` is told. @default 10000
   */
  readonly maxWaiting?: number;
  /** @default 30000 */
  readonly handlerTimeoutMs?: number;
  /** Recorded with each mark. @default 1 */
  readonly handlerVersion?: number;
  /**
   * How long the inbox keeps marks and counts of attempts. An event that is delivered again after its mark is gone is applied again: so
   * a mark is kept, whatever this says, while the broker still has messages of its time. `false` keeps everything. @default 2592000000 (30 days)
   */
  readonly inboxRetentionMs?: number | false;
  /** How long a process that died keeps others from a topic, where the broker does not assign. @default 15000 */
  readonly seatMs?: number;
  /** This process's name; no two may share one. @default a new id */
  readonly owner?: string;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly failpoints?: Failpoints;
  /** Hears what happens on the path: a function, or a logger such as `console` or pino. False: nothing. @default deaths, troubles and recoveries to stderr */
  readonly observe?: ObserveOption;
}

const known = [
  ...["consumer", "source", "inbox", "topics", "handlers", "events", "tx", "deadLetters", "deadTopic", "retry", "concurrency", "prefetch"],
  ...[
    "prefetchBytes",
    "maxWaiting",
    "handlerTimeoutMs",
    "handlerVersion",
    "inboxRetentionMs",
    "seatMs",
    "owner",
    "clock",
    "random",
    "failpoints",
    "observe",
  ],
];

/** The options as far as they do not depend on the types of transactions and events. */
type Checked = Omit<SubscriberOptions<never>, "inbox" | "tx" | "handlers" | "events"> & {
  readonly handlers: object;
  readonly events?: Schemas;
};

/** Receives, and applies each event once: aggregates side by side, each of them in order. */
export function createSubscriber<InboxTx, Tx = InboxTx, const Events extends Schemas = Schemas>(
  options: SubscriberOptions<InboxTx, Tx, Events>,
): Service {
  checkOptions("createSubscriber", options, known);
  checkNames("consumer", [options.consumer]);
  checkNames("topics", options.topics);
  const { consumer, source, clock = systemClock, random = systemRandom } = options;
  if (typeof source?.receive !== "function") throw new WaybillError("INVALID_OPTION", `source must be a broker, not ${show(source)}`);
  if (typeof options.inbox?.inbox?.once !== "function")
    throw new WaybillError("INVALID_OPTION", `inbox must be a store, not ${show(options.inbox)}`);
  const observe = observerOf(options.observe);
  const concurrency = whole("concurrency", options.concurrency ?? 16);
  const parts = {
    consumer,
    inbox: options.inbox.inbox,
    letters: letterPlace({
      ...{ consumer, topics: options.topics, source, clock },
      ...{ deadLetters: options.deadLetters, deadTopic: options.deadTopic },
    }),
    ...handling(options),
    handlerVersion: whole("handlerVersion", options.handlerVersion ?? 1),
    handlerTimeoutMs: positive("handlerTimeoutMs", options.handlerTimeoutMs ?? 30_000),
    concurrency,
    retry: retrySchedule(options.retry ?? {}, random),
    clock,
    random,
    failpoints: options.failpoints ?? noFailpoints,
    observe,
    troubles: createTroubles(observe, consumer, clock),
  };
  const settings: Subscribe<InboxTx> = {
    parts,
    source,
    letters: options.inbox.letters ?? null,
    topics: [...options.topics],
    prefetch: whole("prefetch", options.prefetch ?? concurrency * 16),
    prefetchBytes: whole("prefetchBytes", options.prefetchBytes ?? 32 * 1024 * 1024),
    maxWaiting: whole("maxWaiting", options.maxWaiting ?? 10_000),
    retentionMs: options.inboxRetentionMs === false ? null : positive("inboxRetentionMs", options.inboxRetentionMs ?? 30 * 86_400_000),
    seatMs: positive("seatMs", options.seatMs ?? 15_000),
    owner: options.owner ?? uuidv7(clock, random)(),
  };
  return createService((run) => subscribe(settings, run));
}

function checkNames(option: string, names: readonly string[]): void {
  if (!Array.isArray(names) || names.length === 0)
    throw new WaybillError("INVALID_OPTION", `${option} must name at least one, not ${show(names)}`);
  for (const name of names) {
    if (typeof name !== "string" || name === "" || Buffer.byteLength(name) > 255 || /[\0\r\n]/.test(name) || !name.isWellFormed()) {
      throw new WaybillError("INVALID_OPTION", `${option} must hold names of 1 to 255 bytes in one line, not ${show(name)}`);
    }
  }
  if (new Set(names).size < names.length) throw new WaybillError("INVALID_OPTION", `${option} must not name one twice: ${show(names)}`);
}

function handling<InboxTx>(
  options: Checked & { readonly tx?: ((tx: InboxTx) => unknown) | undefined },
): Pick<Path<InboxTx>, "handles" | "handle"> {
  const { events, tx: handleOf = (tx: InboxTx) => tx } = options;
  const handlers = new Map(Object.entries(options.handlers ?? {}) as [string, Handler<SubscriberEvent, unknown>][]);
  if (handlers.size === 0) throw new WaybillError("INVALID_OPTION", "handlers must hold a handler for at least one event type");
  for (const [type, handler] of handlers) {
    if (typeof handler !== "function")
      throw new WaybillError("INVALID_OPTION", `the handler of ${show(type)} must be a function, not ${show(handler)}`);
    if (events !== undefined && type !== "*" && schemaIn(events, type) === null) {
      throw new WaybillError(
        "INVALID_OPTION",
        `there is a handler for ${show(type)}, which is not in the catalogue${suggestion(type, Object.keys(events))}`,
      );
    }
  }
  const handlerOf = (type: string): Handler<SubscriberEvent, unknown> | undefined => handlers.get(type) ?? handlers.get("*");
  return {
    handles: (type) => handlerOf(type) !== undefined,
    async handle(topic, envelope, tx, signal) {
      await handlerOf(envelope.type)?.(await decode(topic, envelope, schemaIn(events, envelope.type)), handleOf(tx), signal);
    },
  };
}
