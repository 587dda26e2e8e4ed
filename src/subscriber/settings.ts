import type { SettingTable } from "../core/settings.ts";

/** Every setting of a subscriber. The options of `createSubscriber`, their checks and defaults follow from these rows. */
export const subscriberSettings = {
  /** When an event whose handler failed is tried again, and how often before it becomes a letter. */
  retry: { kind: "retry", default: {} },
  /** How many transactions run in parallel. Events of one aggregate never do. @default 16 */
  concurrency: { kind: "whole", default: 16 },
  /**
   * How many events may share one transaction: one statement marks them all, and one COMMIT keeps all their effects. When one of them
   * fails, all is rolled back, and each is applied by itself. `handlerTimeoutMs` then limits all handlers of a transaction together. After
   * a deadlock, batches go one at a time for a while.
   * @default 1
   */
  batch: { kind: "whole", default: 1 },
  /**
   * How many deliveries of a topic may be unacknowledged, apart from those that wait. @default 16 for each of `concurrency`, or `batch` if
   * that is more
   */
  prefetch: { kind: "whole" },
  /**
   * How many bytes of a topic's deliveries may be unacknowledged, apart from those that wait. As many bytes again may wait. There, one
   * message counts as half of them at most. @default 33554432 (32 MiB)
   */
  prefetchBytes: { kind: "whole", default: 33_554_432 },
  /**
   * How many more deliveries may wait, in memory, because an event of their aggregate has failed or takes longer than a second. When
   * that many wait, the topic's other aggregates wait too, and `subscriber.full` is reported. @default 10000
   */
  maxWaiting: { kind: "whole", default: 10_000 },
  /** How long a handler may take; its transaction is then rolled back. @default 30000 */
  handlerTimeoutMs: { kind: "time", default: 30_000 },
  /** Recorded with each mark. @default 1 */
  handlerVersion: { kind: "whole", default: 1 },
  /**
   * How long the inbox keeps marks and counts of attempts. An event that is delivered again after its mark is gone is applied again. So a
   * mark is kept for longer while the broker still has messages of its time. `false` keeps everything. @default 2592000000 (30 days)
   */
  inboxRetentionMs: { kind: "timeOrFalse", default: 2_592_000_000 },
  /** How long a crashed process keeps others from a topic, where the broker does not assign aggregates. @default 15000 */
  seatMs: { kind: "time", default: 15_000 },
  /** This process's name; no two processes may share one. @default a new id */
  owner: { kind: "text" },
} as const satisfies SettingTable;
