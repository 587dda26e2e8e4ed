import { WaybillError } from "../../core/errors.ts";
import { asWord } from "../../core/text.ts";

/** Kafka's error codes that mean something to us, by the names of its protocol. */
export const codes = {
  UNKNOWN_SERVER_ERROR: -1,
  NONE: 0,
  OFFSET_OUT_OF_RANGE: 1,
  CORRUPT_MESSAGE: 2,
  UNKNOWN_TOPIC_OR_PARTITION: 3,
  LEADER_NOT_AVAILABLE: 5,
  NOT_LEADER_OR_FOLLOWER: 6,
  REQUEST_TIMED_OUT: 7,
  BROKER_NOT_AVAILABLE: 8,
  REPLICA_NOT_AVAILABLE: 9,
  MESSAGE_TOO_LARGE: 10,
  NETWORK_EXCEPTION: 13,
  COORDINATOR_LOAD_IN_PROGRESS: 14,
  COORDINATOR_NOT_AVAILABLE: 15,
  NOT_COORDINATOR: 16,
  INVALID_TOPIC_EXCEPTION: 17,
  RECORD_LIST_TOO_LARGE: 18,
  NOT_ENOUGH_REPLICAS: 19,
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: 20,
  ILLEGAL_GENERATION: 22,
  INCONSISTENT_GROUP_PROTOCOL: 23,
  INVALID_GROUP_ID: 24,
  UNKNOWN_MEMBER_ID: 25,
  INVALID_SESSION_TIMEOUT: 26,
  REBALANCE_IN_PROGRESS: 27,
  TOPIC_AUTHORIZATION_FAILED: 29,
  GROUP_AUTHORIZATION_FAILED: 30,
  CLUSTER_AUTHORIZATION_FAILED: 31,
  INVALID_TIMESTAMP: 32,
  UNSUPPORTED_VERSION: 35,
  TOPIC_ALREADY_EXISTS: 36,
  INVALID_REPLICATION_FACTOR: 38,
  POLICY_VIOLATION: 44,
  OUT_OF_ORDER_SEQUENCE_NUMBER: 45,
  DUPLICATE_SEQUENCE_NUMBER: 46,
  INVALID_PRODUCER_EPOCH: 47,
  INVALID_TXN_STATE: 48,
  INVALID_PRODUCER_ID_MAPPING: 49,
  CONCURRENT_TRANSACTIONS: 51,
  TRANSACTION_COORDINATOR_FENCED: 52,
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 53,
  KAFKA_STORAGE_ERROR: 56,
  UNKNOWN_PRODUCER_ID: 59,
  NON_EMPTY_GROUP: 68,
  GROUP_ID_NOT_FOUND: 69,
  FENCED_LEADER_EPOCH: 74,
  UNKNOWN_LEADER_EPOCH: 75,
  MEMBER_ID_REQUIRED: 79,
  GROUP_MAX_SIZE_REACHED: 81,
  INVALID_RECORD: 87,
  PRODUCER_FENCED: 90,
  UNKNOWN_TOPIC_ID: 100,
  INCONSISTENT_TOPIC_ID: 103,
} as const;

const names = new Map<number, string>(Object.entries(codes).map(([name, code]) => [code, name]));
const labelOf = (code: number): string => (names.has(code) ? `${names.get(code)} (${code})` : `error ${code}`);

/**
 * What a code means for a batch that we asked the broker to write:
 * - `stored`: written, as requested;
 * - `size`: not written, since the batch is too large; sending it in parts shows which message is to blame;
 * - `event`: not written, because of its content;
 * - `moved`: not written, since we asked the wrong broker, or too early; look the topic up again;
 * - `sequence`: not written, since the broker has forgotten this producer or taken a newer one; a new producer may send it again;
 * - `destination`: not written, and it is not the batch's fault;
 * - `unknown`: written or not, we cannot know.
 */
type Verdict = "stored" | "size" | "event" | "moved" | "sequence" | "destination" | "unknown";

const leaderless = [codes.LEADER_NOT_AVAILABLE, codes.NOT_LEADER_OR_FOLLOWER, codes.FENCED_LEADER_EPOCH, codes.UNKNOWN_LEADER_EPOCH];

const verdicts = new Map<number, Verdict>(
  Object.entries({
    stored: [codes.NONE],
    size: [codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE],
    event: [codes.INVALID_RECORD, codes.INVALID_TIMESTAMP],
    moved: [codes.UNKNOWN_TOPIC_OR_PARTITION, codes.UNKNOWN_TOPIC_ID, ...leaderless],
    sequence: [
      ...[codes.OUT_OF_ORDER_SEQUENCE_NUMBER, codes.UNKNOWN_PRODUCER_ID, codes.INVALID_PRODUCER_EPOCH, codes.INVALID_PRODUCER_ID_MAPPING],
      ...[codes.INVALID_TXN_STATE, codes.PRODUCER_FENCED, codes.TRANSACTION_COORDINATOR_FENCED],
    ],
    // Refused before anything is written: too few replicas, no right, a topic that cannot exist, a policy.
    destination: [
      ...[codes.NOT_ENOUGH_REPLICAS, codes.TOPIC_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED],
      ...[codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, codes.INVALID_TOPIC_EXCEPTION, codes.POLICY_VIOLATION, codes.UNSUPPORTED_VERSION],
    ],
  }).flatMap(([verdict, own]) => own.map((code) => [code, verdict as Verdict])),
);

/** A code that is not in the table says nothing about the write: the message may be stored. */
export const verdictOf = (code: number): Verdict => verdicts.get(code) ?? "unknown";

/** Answers that may differ a moment later: the broker is starting, or is no longer the right one. */
const passing = new Set<number>([
  ...[codes.UNKNOWN_TOPIC_OR_PARTITION, codes.UNKNOWN_TOPIC_ID, codes.INCONSISTENT_TOPIC_ID],
  ...leaderless,
  ...[codes.REQUEST_TIMED_OUT, codes.BROKER_NOT_AVAILABLE, codes.REPLICA_NOT_AVAILABLE, codes.NETWORK_EXCEPTION],
  ...[codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE, codes.NOT_COORDINATOR],
  ...[codes.KAFKA_STORAGE_ERROR, codes.CONCURRENT_TRANSACTIONS],
]);

export const isPassing = (code: number): boolean => passing.has(code);

/** The server's refusal of a request, by its code. */
export class KafkaRefusal extends WaybillError {
  readonly kafkaCode: number;
  /** The code by its name. */
  readonly label: string;

  constructor(code: number, where: string, said?: string | null) {
    const label = labelOf(code);
    super("DESTINATION_UNAVAILABLE", `${where}: ${label}${said ? `: ${said}` : ""}`);
    this.kafkaCode = code;
    this.label = label;
  }
}

/** Throws for any code but none. */
export function succeed(code: number, where: string, said?: string | null): void {
  if (code !== codes.NONE) throw new KafkaRefusal(code, where, said);
}

export const codeOf = (error: unknown): number | null => (error instanceof KafkaRefusal ? error.kafkaCode : null);

/** What came is no answer to this request. */
export const wrongAnswer = (shown: string, request: string, cause?: unknown): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", `${shown} answered the request ${request} as no Kafka does`, { cause });

export const absent = (shown: string, topic: string): WaybillError =>
  new WaybillError(
    "DESTINATION_UNAVAILABLE",
    `${shown} has no topic ${JSON.stringify(topic)}: provision it first (waybill migrate --broker ${shown} --topics ${asWord(topic)})`,
  );
