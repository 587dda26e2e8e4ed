import { systemClock, type Clock } from "../core/clock.ts";
import { show, WaybillError } from "../core/errors.ts";
import { noFailpoints, type Failpoints } from "../core/failpoints.ts";
import { uuidv7 } from "../core/ids.ts";
import { suggestion } from "../core/options.ts";
import { observerOf, type ObserveOption } from "../core/observer.ts";
import { systemRandom, type Random } from "../core/random.ts";
import { retrySchedule } from "../core/retry.ts";
import { createService, type Service } from "../core/service.ts";
import { settle, type OptionsOf } from "../core/settings.ts";
import type { Watched } from "../contracts/consumers.ts";
import type { DeadLetters } from "../contracts/dead-letters.ts";
import type { Inbox } from "../contracts/inbox.ts";
import type { Letters } from "../contracts/letters.ts";
import type { Delivery, Source } from "../contracts/source.ts";
import type { DeadTopic } from "./dead-letter-topic.ts";
import type { Path } from "./persist.ts";
import { callsOf } from "./calls.ts";
import {
  decode,
  schemaIn,
  type BatchHandler,
  type BatchHandlers,
  type Handler,
  type Handlers,
  type Schemas,
  type SubscriberEvent,
} from "./event.ts";
import { letterPlace } from "./letters.ts";
import { lookAt, probeLetters } from "./look.ts";
import { subscriberSettings } from "./settings.ts";
import { subscribe, type Subscribe } from "./subscribe.ts";
import { createTroubles } from "./trouble.ts";

export interface SubscriberOptions<InboxTx, Tx = InboxTx, Events extends Schemas = Schemas> extends OptionsOf<typeof subscriberSettings> {
  /** The name under which events count as handled. Several processes may share it: each event has one effect among them. */
  readonly consumer: string;
  readonly source: Source;
  /** Where marks and effects are kept: a store, or anything that has an inbox. With `letters`, redriven letters are applied too. */
  readonly inbox: { readonly inbox: Inbox<InboxTx>; readonly letters?: Letters };
  readonly topics: readonly string[];
  /** By event type. There must be at least one handler, here or in `batchHandlers`. */
  readonly handlers?: Handlers<Events, NoInfer<Tx>>;
  /** By event type: handlers that take all their events of a transaction at once, as far as order allows; see `batch`. */
  readonly batchHandlers?: BatchHandlers<Events, NoInfer<Tx>>;
  /** Schemas that check and type the payloads. An event whose payload does not fit is parked. */
  readonly events?: Events;
  /** Turns the inbox's transaction into the handle that handlers are given. @default the inbox's own */
  readonly tx?: (tx: InboxTx) => Tx;
  /** Where letters go instead. A letter that this place refuses for good still goes to the inbox. @default the inbox's database */
  readonly deadLetters?: DeadLetters;
  /** A topic on the source's broker for letters, such as "{topic}.dead". @default none: the inbox's database keeps them */
  readonly deadTopic?: DeadTopic;
  readonly clock?: Clock;
  /** @internal For tests and simulations. */
  readonly random?: Random;
  /** @internal For tests and simulations. */
  readonly failpoints?: Failpoints;
  /** For path events: a function, or a logger such as `console` or pino. False: none. @default deaths, troubles and recoveries to stderr */
  readonly observe?: ObserveOption;
}

/** The options as far as they do not depend on the types of transactions and events. */
type Checked = Omit<SubscriberOptions<never>, "inbox" | "tx" | "handlers" | "batchHandlers" | "events"> & {
  readonly handlers?: object;
  readonly batchHandlers?: object;
  readonly events?: Schemas;
};

/** A service, with the figures that a metrics page shows. */
export interface Subscriber extends Service, Watched {}

/** Receives events and applies each one once: aggregates in parallel, each aggregate's events in order. */
export function createSubscriber<InboxTx, Tx = InboxTx, const Events extends Schemas = Schemas>(
  options: SubscriberOptions<InboxTx, Tx, Events>,
): Subscriber {
  const settings = settle("createSubscriber", subscriberSettings, options, {
    consumer: true,
    source: true,
    inbox: true,
    topics: true,
    handlers: true,
    batchHandlers: true,
    events: true,
    tx: true,
    deadLetters: true,
    deadTopic: true,
    clock: true,
    random: true,
    failpoints: true,
    observe: true,
  });
  checkNames("consumer", [options.consumer]);
  checkNames("topics", options.topics);
  if (options.owner !== undefined) checkNames("owner", [options.owner]);
  const { consumer, source, clock = systemClock, random = systemRandom } = options;
  if (typeof source?.receive !== "function") throw new WaybillError("INVALID_OPTION", `source must be a broker, not ${show(source)}`);
  if (typeof options.inbox?.inbox?.once !== "function")
    throw new WaybillError("INVALID_OPTION", `inbox must be a store, not ${show(options.inbox)}`);
  const observe = observerOf(options.observe);
  const { concurrency, batch, inboxRetentionMs } = settings;
  const parts = {
    ...settings,
    consumer,
    inbox: options.inbox.inbox,
    letters: letterPlace({
      ...{ consumer, topics: options.topics, source, clock },
      ...{ deadLetters: options.deadLetters, deadTopic: options.deadTopic },
    }),
    ...handling(options),
    retry: retrySchedule(settings.retry, random),
    clock,
    random,
    failpoints: options.failpoints ?? noFailpoints,
    observe,
    troubles: createTroubles(observe, consumer, clock),
  };
  const life: Subscribe<InboxTx> = {
    ...settings,
    parts,
    source,
    letters: options.inbox.letters ?? null,
    topics: [...options.topics],
    prefetch: settings.prefetch ?? concurrency * Math.max(16, batch),
    retentionMs: inboxRetentionMs === false ? null : inboxRetentionMs,
    owner: settings.owner ?? uuidv7(clock, random)(),
  };
  const looked = { consumer, topics: life.topics, source, letters: parts.letters, clock };
  const service = createService(async (run) => {
    void probeLetters({ ...looked, troubles: parts.troubles }, run.draining);
    await subscribe(life, run);
  });
  const stopped = (): WaybillError => new WaybillError("STOPPED", `the subscriber of ${consumer} does not run`);
  return Object.assign(service, {
    consumer,
    look: () => (service.isRunning() ? lookAt(looked) : Promise.reject(stopped())),
  });
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
): Pick<Path<InboxTx>, "handles" | "calls" | "handle"> {
  const { events, tx: handleOf = (tx: InboxTx) => tx } = options;
  const one = new Map(Object.entries(options.handlers ?? {}) as [string, Handler<SubscriberEvent, unknown>][]);
  const many = new Map(Object.entries(options.batchHandlers ?? {}) as [string, BatchHandler<SubscriberEvent, unknown>][]);
  if (one.size + many.size === 0) throw new WaybillError("INVALID_OPTION", "handlers must hold a handler for at least one event type");
  for (const [type, handler] of [...one, ...many]) {
    if (typeof handler !== "function")
      throw new WaybillError("INVALID_OPTION", `the handler of ${show(type)} must be a function, not ${show(handler)}`);
    if (one.has(type) && many.has(type))
      throw new WaybillError("INVALID_OPTION", `${show(type)} has a handler in handlers and in batchHandlers: leave one of them out`);
    if (events !== undefined && type !== "*" && schemaIn(events, type) === null) {
      throw new WaybillError(
        "INVALID_OPTION",
        `there is a handler for ${show(type)}, which is not in the catalogue${suggestion(type, Object.keys(events))}`,
      );
    }
  }
  const own = (type: string): string => (one.has(type) || many.has(type) ? type : "*");
  const decoded = ({ topic, envelope }: Delivery): Promise<SubscriberEvent> => decode(topic, envelope, schemaIn(events, envelope.type));
  return {
    handles: (type) => one.has(own(type)) || many.has(own(type)),
    calls: (deliveries) =>
      callsOf(
        deliveries,
        ({ envelope }) => own(envelope.type),
        (type) => many.has(type),
      ),
    async handle(deliveries, tx, signal) {
      const type = own(deliveries[0]!.envelope.type);
      const batched = many.get(type);
      if (batched !== undefined) await batched(await Promise.all(deliveries.map(decoded)), handleOf(tx), signal);
      else await one.get(type)?.(await decoded(deliveries[0]!), handleOf(tx), signal);
    },
  };
}
