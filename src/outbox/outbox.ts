import type { OutboxWriter, Transactor } from "../contracts/outbox-store.ts";
import { systemClock, type Clock } from "../core/clock.ts";
import { DEFAULT_MAX_PAYLOAD_BYTES, prepare } from "../core/draft.ts";
import { show, WaybillError } from "../core/errors.ts";
import type { Added, Draft, Row } from "../core/event.ts";
import type { EventMap } from "../core/event-map.ts";
import { uuidv7, type NewId } from "../core/ids.ts";
import { checkOptions, whole } from "../core/options.ts";
import { systemRandom, type Random } from "../core/random.ts";
import type { Wake } from "../core/wake.ts";
import { defineEvents, fit, isThenable, type DraftOf } from "./catalogue.ts";

export interface OutboxOptions<Db, Tx, Handle, Events extends EventMap> {
  /** Any store; only its writing side is used. */
  readonly store: { readonly writer: OutboxWriter<Tx>; readonly transactor: Transactor<Db, Tx>; readonly wake: Wake };
  /** From the handle that your own code has to the one that the store writes through. @default they are the same */
  readonly tx?: (handle: Handle) => Tx;
  /** The catalogue: only its events can be added. */
  readonly events?: Events;
  /** @default 262144 */
  readonly maxPayloadBytes?: number;
  readonly clock?: Clock;
  readonly random?: Random;
  /** @default UUIDv7 */
  readonly newId?: NewId;
}

export interface Outbox<Db, Tx, Handle = Tx, D = Draft> {
  /**
   * Adds inside your transaction; many drafts are one statement. Everything that can be refused is thrown, not
   * rejected, and a store with a synchronous client has inserted when this returns: a synchronous transaction,
   * in which nobody awaits, rolls back too. With an asynchronous client, await it before you commit.
   */
  add(tx: Handle, draft: D): Promise<Added>;
  add(tx: Handle, drafts: readonly D[]): Promise<readonly Added[]>;
  /**
   * Runs `work` in a transaction of its own, inserts what it added as the last statement, commits, and wakes the relay.
   * Whatever `work` locks is locked before the insert: an aggregate's events are numbered in the order of its commits.
   */
  transaction<T>(db: Db, work: (tx: Tx, events: EventBuffer<D>) => T | Promise<T>): Promise<T>;
}

export interface EventBuffer<D = Draft> {
  /** Checked and encoded at once, inserted before the commit. An asynchronous schema's refusal fails the transaction. */
  add(given: D | readonly D[]): void;
}

export function createOutbox<Db, Tx, Handle = Tx, const Events extends EventMap = EventMap>(
  options: OutboxOptions<Db, Tx, Handle, Events>,
): Outbox<Db, Tx, Handle, DraftOf<Events>> {
  checkOptions("createOutbox", options, ["store", "tx", "events", "maxPayloadBytes", "clock", "random", "newId"]);
  const { store, tx: unwrap } = options;
  if (!store?.writer || !store.transactor || !store.wake) {
    throw new WaybillError("INVALID_OPTION", `createOutbox needs a store, such as sqlite({ path }), not ${show(store)}`);
  }
  const { writer, transactor, wake } = store;
  const catalogue = options.events === undefined ? null : defineEvents(options.events);
  const newId = options.newId ?? uuidv7(options.clock ?? systemClock, options.random ?? systemRandom);
  const maxPayloadBytes = whole("maxPayloadBytes", options.maxPayloadBytes ?? DEFAULT_MAX_PAYLOAD_BYTES);

  /** A promise only for a draft whose schema gives one. */
  const ready = (draft: Draft, mayWait: boolean): Row | Promise<Row> => {
    const fitted = catalogue === null ? draft : fit(catalogue, draft);
    if (!(fitted instanceof Promise)) return prepare(fitted, newId, maxPayloadBytes);
    const row = fitted.then((late) => prepare(late, newId, maxPayloadBytes));
    row.catch(() => undefined); // when another draft is refused first, nobody waits for this one
    if (mayWait) return row;
    throw new WaybillError(
      "ASYNC_SCHEMA",
      `the schema of ${draft.type} is asynchronous, and a transaction of this store does not wait for it: use outbox.transaction`,
    );
  };

  const append = (tx: Tx, rows: readonly (Row | Promise<Row>)[]): Promise<readonly Added[]> =>
    areReady(rows) ? writer.append(tx, rows) : Promise.all(rows.map(async (row) => row)).then((all) => writer.append(tx, all));

  function add(handle: Handle, draft: DraftOf<Events>): Promise<Added>;
  function add(handle: Handle, drafts: readonly DraftOf<Events>[]): Promise<readonly Added[]>;
  function add(handle: Handle, given: OneOrMany): Promise<Added | readonly Added[]> {
    if (handle === undefined || handle === null) {
      throw new WaybillError("NO_TRANSACTION", `outbox.add was given ${show(handle)} in place of a transaction`);
    }
    const rows = listed(given).map((draft) => ready(draft, !writer.synchronous));
    if (rows.length === 0) return Promise.resolve([]);
    const added = append(unwrap === undefined ? (handle as unknown as Tx) : unwrap(handle), rows);
    if (writer.synchronous) wake.notify();
    return added.then((all) => {
      if (!writer.synchronous) wake.notify();
      return Array.isArray(given) ? all : all[0]!;
    });
  }

  return {
    add,
    async transaction(db, work) {
      let buffer: (Row | Promise<Row>)[] | null = null;
      let wrote = false;
      const events: EventBuffer<DraftOf<Events>> = {
        add(given) {
          if (buffer === null) throw ended();
          const rows = listed(given).map((draft) => ready(draft, true));
          for (const row of rows) buffer.push(row);
        },
      };
      try {
        const value = await transactor.transaction(db, (tx) => {
          const rows: (Row | Promise<Row>)[] = (buffer = []);
          return after(work(tx, events), (result) => {
            buffer = null;
            wrote = rows.length > 0;
            if (!wrote) return result;
            const now = writer.synchronous && areReady(rows);
            const added = append(tx, rows);
            return now ? result : added.then(() => result);
          });
        });
        if (wrote) wake.notify();
        return value;
      } finally {
        buffer = null;
      }
    },
  };
}

function ended(): WaybillError {
  return new WaybillError("NO_TRANSACTION", "events.add came after its transaction had ended: await everything inside the callback");
}

type OneOrMany = object | readonly object[];

/** Holes of an array become undefined, and are refused like it. */
function listed(given: OneOrMany): readonly Draft[] {
  return Array.isArray(given) ? Array.from(given as Draft[]) : [given as Draft];
}

function areReady(rows: readonly (Row | Promise<Row>)[]): rows is readonly Row[] {
  return !rows.some((row) => row instanceof Promise);
}

/** Goes on at once where there is nothing to wait for: within a synchronous transaction nothing may come between. */
function after<T>(value: T | PromiseLike<T>, next: (value: T) => T | Promise<T>): T | Promise<T> {
  return isThenable(value) ? Promise.resolve(value).then(next) : next(value);
}
