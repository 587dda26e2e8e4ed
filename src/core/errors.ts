import { types } from "node:util";
import { pageOf } from "./docs.ts";
import { legible } from "./text.ts";

/**
 * Every error a user can meet. `docs/errors.md` is generated from this table and a test keeps them equal.
 * `retryable` means: the same call may succeed later without anything being changed by hand.
 */
export const errorTable = {
  NO_TRANSACTION: {
    meaning: "The handle given to the outbox or inbox has no open transaction: it never began, or has ended.",
    remedy: "Begin a transaction on this handle, add the event inside it, and await everything before it commits.",
    retryable: false,
  },
  ALREADY_IN_TRANSACTION: {
    meaning: "outbox.transaction was given a handle that is inside a transaction already.",
    remedy: "Use outbox.add with that transaction, or give outbox.transaction a handle of its own.",
    retryable: false,
  },
  TRANSACTION_LOST: {
    meaning: "The transaction ended before the work inside it had finished. Statements after that point were not kept.",
    remedy: "Do not commit or roll back inside the callback, and await every statement in it.",
    retryable: true,
  },
  COMMIT_UNKNOWN: {
    meaning: "The connection was lost during COMMIT, so the transaction may or may not have been committed.",
    remedy: "Check in the database whether the transaction was committed before you run it again.",
    retryable: false,
  },
  UNKNOWN_EVENT_TYPE: {
    meaning: "The event type is not in the catalogue this outbox was created with.",
    remedy: "Add the type to the catalogue, or correct its spelling.",
    retryable: false,
  },
  INVALID_PAYLOAD: {
    meaning: "The payload does not match the schema that the catalogue gives for its event type.",
    remedy: "Correct the payload; the message names the first path that is wrong.",
    retryable: false,
  },
  ASYNC_SCHEMA: {
    meaning: "The schema validates asynchronously, but this store writes within a synchronous transaction.",
    remedy: "Use a synchronous schema, or add the event through outbox.transaction.",
    retryable: false,
  },
  PAYLOAD_NOT_SERIALISABLE: {
    meaning: "The payload cannot be written as JSON: it holds a cycle, a BigInt, or is undefined or a function.",
    remedy: "Give a plain value, or give bytes (Uint8Array) with a content type of your own.",
    retryable: false,
  },
  PAYLOAD_TOO_LARGE: {
    meaning: "The encoded payload is larger than the limit (256 KiB unless configured).",
    remedy: "Store the large part elsewhere and put a reference into the event, or raise maxPayloadBytes below every broker's limit.",
    retryable: false,
  },
  INVALID_DRAFT: {
    meaning: "A field of the event is missing, empty, too long, or of the wrong kind.",
    remedy: "Correct the field that the message names.",
    retryable: false,
  },
  INVALID_HEADER: {
    meaning: "A header name or value would be misread by a broker: a control character, a wrong name, or too long.",
    remedy: "Use token characters for names and text without CR, LF or NUL for values.",
    retryable: false,
  },
  RESERVED_HEADER: {
    meaning: "The header name belongs to the message format or to a broker (ce-, ce_, nats-, x-, waybill-, content-type, cc, bcc).",
    remedy: "Choose a name without a reserved prefix.",
    retryable: false,
  },
  INVALID_OPTION: {
    meaning: "An option is unknown, or its value cannot be used.",
    remedy: "Correct the option that the message names.",
    retryable: false,
  },
  BAD_URL: {
    meaning: "The URL cannot be understood, or its scheme is not one that Waybill has an adapter for.",
    remedy:
      "Use one of these schemes: postgres, mysql, mariadb or sqlite for a store; kafka, amqp, nats, redis or embedded for a broker. Examples: postgres://host:5432/shop, sqlite:./app.db, amqp://host:5672.",
    retryable: false,
  },
  USAGE: {
    meaning: "The command line is wrong.",
    remedy: "See `waybill help`.",
    retryable: false,
  },
  CONFIG_INVALID: {
    meaning: "The configuration file cannot be read, or does not hold what it should.",
    remedy: "Correct the file that the message names.",
    retryable: false,
  },
  NOT_MIGRATED: {
    meaning: "The database has no Waybill tables, or they are older than this version needs.",
    remedy: "`waybill migrate --store URL` creates and upgrades them, beside traffic too. With --print it only shows its SQL.",
    retryable: false,
  },
  SCHEMA_NEWER: {
    meaning: "The tables were made by a newer version of Waybill than this one.",
    remedy: "Upgrade Waybill in this service. Nothing was written.",
    retryable: false,
  },
  SCHEMA_UNRELEASED: {
    meaning: "The tables were made by an unreleased build of Waybill, whose SQL was another. No migration leads from there.",
    remedy:
      "Let the build that made them publish what waits. Then begin with new tables under another schema, name or file, or drop these and run `waybill migrate`.",
    retryable: false,
  },
  STORE_READ_ONLY: {
    meaning: "This user may not write to the database, or the database takes no writes, as a standby does.",
    remedy: "Give this user the right that the message names, or use a database that takes writes.",
    retryable: false,
  },
  STORE_CORRUPT: {
    meaning: "The file is not a database, or is damaged.",
    remedy: "Check the path. If the file was a database, restore it from a backup.",
    retryable: false,
  },
  STORE_UNAVAILABLE: {
    meaning: "The database cannot be reached, or did not answer in time.",
    remedy: "Check that the file or server exists, admits this user, and is not locked by another program.",
    retryable: true,
  },
  LOG_UNREADABLE: {
    meaning: "The database's log cannot be read: its slot is missing, lost or in use, or a right or a setting is missing.",
    remedy: "The message says which. The table has every event, so nothing is lost, and polling does not need the log.",
    retryable: false,
  },
  UNSUPPORTED: {
    meaning: "This adapter, or this version of its client, cannot do what was asked.",
    remedy: "The message names what can.",
    retryable: false,
  },
  DRIVER_MISSING: {
    meaning: "The client package for this adapter is not installed.",
    remedy: "Install the package that the message names.",
    retryable: false,
  },
  DRIVER_UNFIT: {
    meaning: "The installed client lacks something that Waybill needs to keep its promises.",
    remedy: "Use the version or the client that the message names.",
    retryable: false,
  },
  MESSAGE_TOO_LARGE: {
    meaning: "The broker does not take a message of this size.",
    remedy: "Raise the broker's limit and redrive the event, or discard it.",
    retryable: false,
  },
  ROUTE_FAILED: {
    meaning: "The route gave no usable topic for the event, or one that is not among the relay's topics.",
    remedy: "Correct the route or the relay's topics, then redrive the event. Discard it if nobody should have added it.",
    retryable: false,
  },
  CRASHED_RELAY: {
    meaning: "Three relays in a row crashed while they had this event alone in their window.",
    remedy: "Find out why this event crashes the relay, then redrive or discard it.",
    retryable: false,
  },
  ROW_UNREADABLE: {
    meaning: "The row in the outbox cannot be carried as an event. A program other than the library wrote it.",
    remedy: "Correct the program that wrote it, then discard the event and add a good one.",
    retryable: false,
  },
  MESSAGE_UNREADABLE: {
    meaning: "The message is not an event, or holds something that no subscriber can mark or carry.",
    remedy: "Look at the letter, which has the bytes as they came, and correct the program that published it.",
    retryable: false,
  },
  EFFECT_UNFINISHED: {
    meaning: "An earlier attempt of the handler ended its transaction before it had finished, so its effect may be incomplete.",
    remedy: "Find the statement that ends it (COMMIT, ROLLBACK, TRUNCATE, DDL, LOCK TABLES), then repair the effect by hand.",
    retryable: false,
  },
  DESTINATION_UNAVAILABLE: {
    meaning: "The broker or the topic cannot be reached, does not exist, or refuses this client.",
    remedy: "Check that it exists and admits this user. Events in the outbox wait meanwhile, and no attempt is counted.",
    retryable: true,
  },
  PUBLISH_UNKNOWN: {
    meaning: "The broker did not answer in time, so it may or may not have stored the event.",
    remedy: "None needed. The relay publishes it again when the topic works, and subscribers apply it once.",
    retryable: true,
  },
  LEASE_LOST: {
    meaning: "Another relay owns the lane now, so this relay's results for it were not recorded.",
    remedy: "None needed. The relay drops the lane and continues with its other lanes.",
    retryable: true,
  },
  NOT_FOUND: {
    meaning: "There is no event with this id.",
    remedy: "Check the id with `waybill events list` or `waybill dead list`.",
    retryable: false,
  },
  WRONG_STATE: {
    meaning: "The event is not in a state that allows this action.",
    remedy: "Only DEAD events can be redriven or discarded. `waybill events show` shows the state.",
    retryable: false,
  },
  HANDLER_TIMEOUT: {
    meaning: "The handler did not finish within its time limit, and its transaction was rolled back.",
    remedy: "Make the handler faster, or raise handlerTimeoutMs.",
    retryable: true,
  },
  PROMISE_BROKEN: {
    meaning: "A run of verify or dev found a broken promise: events were lost, invented, doubled or out of order.",
    remedy:
      "With --naive, this is what the run is meant to show. Otherwise keep the data (dev --data FOLDER, verify --keep --report PATH) and report it as a bug.",
    retryable: false,
  },
  NEEDS_ATTENTION: {
    meaning: "waybill status --check found dead events, or events that have waited for too long.",
    remedy: `The message says which. ${pageOf("runbook.md")} says what to do about each.`,
    retryable: false,
  },
  UNSAFE_SETTING: {
    meaning: "waybill doctor found live settings of the store or the broker that break a promise.",
    remedy: `Change each setting as the report says. Every check is explained at ${pageOf("doctor.md")}.`,
    retryable: false,
  },
  STOPPED: {
    meaning: "The service or the command was stopped before this was finished.",
    remedy: "Start it again. A relay or subscriber then continues with the unfinished work.",
    retryable: true,
  },
} as const satisfies Record<string, { meaning: string; remedy: string; retryable: boolean }>;

export type ErrorCode = keyof typeof errorTable;

const brand = Symbol.for("waybill.error");

/** One class for all errors. The code distinguishes them, also with two copies of this package in one process. */
export class WaybillError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly remedy: string;

  /** `retryable`: unlike most errors of this code. A server that refuses a password will do so again. */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions & { readonly retryable?: boolean }) {
    super(legible(message), options); // it may quote a server or a row, and goes to terminals
    this.name = "WaybillError";
    this.code = code;
    this.retryable = options?.retryable ?? errorTable[code].retryable;
    this.remedy = errorTable[code].remedy;
    Object.defineProperty(this, brand, { value: true });
  }
}

export function isWaybillError(value: unknown, code?: ErrorCode): value is WaybillError {
  if (typeof value !== "object" || value === null) return false;
  const found = readSafely(() => (brand in value ? (value as unknown as WaybillError).code : undefined), undefined);
  return found !== undefined && (code === undefined || found === code);
}

export function asError(cause: unknown): Error {
  const unreadable = new Error("an error that cannot be read");
  return readSafely(() => (cause instanceof Error ? cause : new Error(typeof cause === "string" ? cause : show(cause))), unreadable);
}

/** A handler may throw anything: a getter that throws, a proxy that was revoked. */
export function readSafely<T>(read: () => T, otherwise: T): T {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** Any value at all, in a few words for a message; never throws. */
export function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 64 ? `${value.slice(0, 64)}…` : value);
  if (typeof value === "bigint") return `${value}n`;
  if (Array.isArray(value))
    return `[${value
      .slice(0, 8)
      .map((item) => (Array.isArray(item) ? "[…]" : show(item)))
      .join(", ")}${value.length > 8 ? ", …" : ""}]`;
  if (types.isDate(value)) return Number.isNaN(value.getTime()) ? "an invalid Date" : value.toISOString();
  if (typeof value === "function") return "a function";
  return typeof value === "object" && value !== null ? "an object" : String(value);
}
