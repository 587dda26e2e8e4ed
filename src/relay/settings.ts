import type { SettingTable } from "../core/settings.ts";
import { strategyNames } from "./lanes/strategies.ts";
import { DEFAULT_ROUTE } from "./route.ts";

const day = 86_400_000;

/** Every setting of a relay. Options, keys of the configuration file, flags and the docs' table follow from these rows. */
export const relaySettings = {
  /** How relays share the lanes. @default "partitioned" */
  coordination: {
    kind: "choice",
    of: strategyNames,
    default: "partitioned",
    flag: `--coordination HOW: how relays share the lanes: ${strategyNames.join(", ")}`,
  },
  /** The lanes of coordination "static". Flag and file also take them as text, such as "0-21,40". */
  own: { kind: "lanes", flag: "--own LANES: the lanes of a static relay, such as 0-21" },
  /**
   * How the relay finds events. "poll": it asks the outbox. "tail": it reads the database's log, and polls while it cannot; the log must be
   * there when it starts. "auto": it reads the log if it can. @default "poll"
   */
  mode: {
    kind: "choice",
    of: ["poll", "tail", "auto"],
    default: "poll",
    flag: "--mode HOW: how the relay finds events: poll asks the outbox, tail reads the database's log, auto reads it if it can",
  },
  /**
   * How many bytes of its log the database may keep for this relay. At half of it the relay warns; beyond it, it gives its slot up and polls,
   * and nothing is lost. @default 8589934592
   */
  logBytes: {
    kind: "whole",
    most: 1_125_899_906_842_624,
    default: 8_589_934_592,
    flag: "--log-bytes N: bytes of its log that the database may keep for the relay, which gives its slot up beyond them",
  },
  /** Name shown in `status`; a unique suffix is added for each life of the relay. @default generated */
  relayId: { kind: "text", flag: "--relay-id NAME: names this relay in status; a part is added that tells its lives apart" },
  /** The most events per window. Windows begin with 250, and widen while there is a backlog. @default 1000 */
  batch: { kind: "whole", most: 100_000, default: 1_000, flag: "--batch N: events claimed at once at most" },
  /** Windows claimed and not settled at once. This times `batch` is how many duplicates one fault may cause. @default 3 */
  batchesInFlight: { kind: "whole", most: 1_000, default: 3, flag: "--batches-in-flight N: batches claimed and not settled at once" },
  /** Payload bytes per window. This times `batchesInFlight` is what a relay holds. A larger event is claimed alone. @default 8388608 */
  windowBytes: { kind: "whole", most: 1_073_741_824, default: 8_388_608, flag: "--window-bytes N: payload bytes claimed at once" },
  /** Wait after a poll that found nothing. There is none while windows are full. @default 100 */
  pollIntervalMs: { kind: "time", key: "pollInterval", default: 100, flag: "--poll-interval TIME: wait after a poll that found nothing" },
  /** A template or a function of the event. @default "{aggregate_type|lower}.events" */
  route: { kind: "route", default: DEFAULT_ROUTE, flag: "--route TEMPLATE: the topic of an event" },
  /**
   * The only topics that events may go to: an event whose route is none of them goes DEAD unsent, so that a writer cannot invent topics.
   * @default any topic
   */
  topics: {
    kind: "names",
    key: "onlyTopics",
    flag: "--topics A,B: the only topics that events may go to: what is routed elsewhere goes DEAD unsent",
  },
  /** How long other relays wait before they take a dead relay's lanes. @default 10000 */
  leaseMs: { kind: "time", key: "lease", least: 1_000, default: 10_000, flag: "--lease TIME: how long a silent relay keeps its lanes" },
  /** A publish without an answer by then is unknown; must be shorter than the lease. @default half of the lease */
  publishTimeoutMs: { kind: "time", key: "publishTimeout" },
  /** When a failed event is sent again, and how often before it goes DEAD. */
  retry: { kind: "retry", default: {} },
  /** Aggregate types whose followers go on when an event dies; all others stay blocked until an operator acts. @default none */
  skip: { kind: "names", flag: "--skip A,B: aggregate types whose followers go on when an event dies" },
  /** Waits between probes of a broken topic, in milliseconds: the first, doubled up to the last. @default 1000 and 30000 */
  probeMs: { kind: "waits", default: { first: 1_000, last: 30_000 } },
  /**
   * How many topics in trouble have a record and probes of their own; twice as many of those that have taken events of this relay. Events
   * for further topics wait under one record, and come back more slowly. A claim reads the records of its lanes. @default 32
   */
  topicRecords: { kind: "whole", most: 10_000, default: 32 },
  /** CloudEvents `source` of every message. @default "/waybill" */
  source: { kind: "text", default: "/waybill" },
} as const satisfies SettingTable;

/** Settings of the relay's housekeeping. */
export const housekeepingSettings = {
  /** How often the relay purges and watches the tables, with some jitter. @default 1 hour */
  everyMs: { kind: "time", key: null, default: 3_600_000 },
  /** How long published and discarded events stay. @default 7 days */
  retentionMs: {
    kind: "time",
    key: "retention",
    least: 1_000,
    most: 36_500 * day,
    default: 7 * day,
    flag: "--retention TIME: how long published and discarded events stay",
  },
  /** How long idempotency keys are known. @default 7 days */
  keyRetentionMs: { kind: "time", key: "keyRetention", least: 1_000, most: 36_500 * day, default: 7 * day },
} as const satisfies SettingTable;
