export { createRelay, type HousekeepingOptions, type OnceReport, type Relay, type RelayOptions } from "./relay/create-relay.ts";
export { createOutbox, type EventBuffer, type Outbox, type OutboxOptions } from "./outbox/outbox.ts";
export { defineEvents, type DraftOf, type EventDefinition, type EventMap, type PayloadOf } from "./outbox/catalogue.ts";
export { createSubscriber, type Subscriber, type SubscriberOptions } from "./subscriber/subscriber.ts";
export type { BatchHandler, BatchHandlers, Handler, Handlers, SubscriberEvent } from "./subscriber/event.ts";
export { fatal } from "./subscriber/fatal.ts";
export { deadLetterTopic, type DeadLetterTopicOptions, type DeadTopic } from "./subscriber/dead-letter-topic.ts";
export type { Route } from "./relay/route.ts";
export { errorTable, isWaybillError, WaybillError, type ErrorCode } from "./core/errors.ts";
export { states, type Added, type Draft, type Envelope, type Row, type State } from "./core/event.ts";
export type { PathEvent, Observe } from "./core/path-events.ts";
export type { Clock } from "./core/clock.ts";
export type { RetryOptions } from "./core/retry.ts";
export type { Service } from "./core/service.ts";
export type { StandardSchema as EventSchema } from "./core/standard-schema.ts";
export { LANES, laneOf } from "./core/lane.ts";
export { fromAttributes, toAttributes, type Attributes } from "./core/cloudevents.ts";
export { createWake, type Wake } from "./core/wake.ts";
export type { ConfigFile } from "./config-file.ts";
export type { ConfiguredBroker, ConfiguredStore } from "./contracts/config.ts";
export type { Store, Schema } from "./contracts/store.ts";
export type {
  Claim,
  ClaimRequest,
  Holding,
  Outcome,
  OutboxStore,
  OutboxWriter,
  SettleReport,
  Transactor,
  Window,
} from "./contracts/outbox-store.ts";
export type { Lane, LaneTable, LeaseStore } from "./contracts/lease-store.ts";
export type { Outgoing, PublishResult, Sink } from "./contracts/sink.ts";
export type { Delivery, Source, Subscription } from "./contracts/source.ts";
export type { Examination, Finding } from "./contracts/doctor.ts";
export type { Inbox, InboxKey, Seat } from "./contracts/inbox.ts";
export type { DeadLetters } from "./contracts/dead-letters.ts";
export type { Consumers, ConsumerState, ConsumerTopic, LetterCount, Retrying, Watched } from "./contracts/consumers.ts";
export type { LetterFilter, LetterGroup, LetterRecord, LetterReport, Letters, WholeLetter } from "./contracts/letters.ts";
export type { Letter } from "./core/letter.ts";
export type {
  Action,
  ActionReport,
  Archive,
  DeadFilter,
  EventFilter,
  EventRecord,
  Operator,
  PurgeOptions,
  Status,
  WholeEvent,
} from "./contracts/operator.ts";
export type { Holder, Housekeeping, PartitionReport, Partitions, Watch } from "./contracts/housekeeping.ts";
