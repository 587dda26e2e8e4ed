import type { Begins, Handle, SqlWriter, TxOf } from "../contracts/handle.ts";
import type { OutboxWriter, Transactor } from "../contracts/outbox-store.ts";
import { systemClock, type Clock } from "../core/clock.ts";
import { DEFAULT_MAX_PAYLOAD_BYTES, prepare } from "../core/draft.ts";
import { show, WaybillError } from "../core/errors.ts";
import type { Added, Draft, Row } from "../core/event.ts";
import type { EventMap } from "./event-map.ts";
import { uuidv7, type NewId } from "../core/ids.ts";
import { reclaim } from "../core/lend.ts";
import { checkOptions, whole } from "../core/options.ts";
import { systemRandom, type Random } from "../core/random.ts";
import type { Wake } from "../core/wake.ts";
import { defineEvents, fit, isThenable, type DraftOf } from "./catalogue.ts";
import { isHandle, libraryWay, ownWay, type Way } from "./way.ts";

export interface OutboxOptions<Db, Tx, Given, Events extends EventMap> {
  /** Any store; only its writing side is used. */
  readonly store: { readonly writer: OutboxWriter<Tx>; readonly transactor: Transactor<Db, Tx>; readonly wake: Wake };
  /** Turns your own code's transaction into the one that the store writes through. @default they are the same */
  readonly tx?: (given: Given) => Tx;
  /** The catalogue: only its events can be added. */
  readonly events?: Events;
  /** @default 262144 */
  readonly maxPayloadBytes?: number;
  readonly clock?: Clock;
  /** @internal For tests and simulations. */
  readonly random?: Random;
  /** @default UUIDv7 */
  readonly newId?: NewId;
}

/** With a library's handle: `add` takes the library's transactions, and `transaction` begins them. */
interface LibraryOutboxOptions<Db, Tx, B extends Begins, Events extends EventMap> extends Omit<
  OutboxOptions<Db, Tx, Tx, Events>,
  "store" | "tx"
> {
  /** A store of the database that the library talks to. */
  readonly store: { readonly writer: SqlWriter; readonly wake: Wake };
  /** One of waybill/handles: fromDrizzle, fromKysely, … */
  readonly tx: Handle<Db, Tx, B>;
}

export interface Outbox<Db, Tx, Given = Tx, D = Draft, B extends Begins = { readonly db: Db; readonly tx: Tx }> {
  /**
   * Adds inside your transaction; many drafts are one statement. Everything that can be refused is thrown, not
   * rejected, and a store with a synchronous client has inserted when this returns. So a synchronous transaction,
   * which awaits nothing, rolls back too. With an asynchronous client, await `add` before you commit.
   */
  add<G>(tx: Given, draft: OneOrList<D, G>): Promise<AddedFor<G>>;
  /**
   * Runs `work` in a transaction of its own, inserts its events as the last statement, commits, and wakes the relay.
   * `work` takes its locks before the insert, so an aggregate's events are numbered in the order of its commits.
   * A COMMIT without an answer rejects with COMMIT_UNKNOWN, and is never retried.
   */
  transaction<T, Of extends Db = Db>(db: Of, work: (tx: TxOf<B, Of>, events: EventBuffer<D>) => T | Promise<T>): Promise<T>;
}

/**
 * What `add` takes: a draft or a list. The condition is never true; `G` stands in it to be inferred, so that `AddedFor` knows
 * which of the two was given, while the compiler checks each field against `D`. Two overloads would say a mistake twice.
 */
type OneOrList<D, G> = [G] extends [never] ? G : [Extract<G, readonly unknown[]>] extends [never] ? D : D | readonly D[];

type AddedFor<G> = 0 extends 1 & G ? Added : G extends readonly unknown[] ? readonly Added[] : Added;

export interface EventBuffer<D = Draft> {
  /** Checked and encoded at once, inserted before the commit. An asynchronous schema's refusal fails the transaction. */
  add(given: D | readonly D[]): void;
}

export function createOutbox<Db, Tx, B extends Begins, const Events extends EventMap = EventMap>(
  options: LibraryOutboxOptions<Db, Tx, B, Events>,
): Outbox<Db, Tx, Tx, DraftOf<Events>, B>;
export function createOutbox<Db, Tx, Given = Tx, const Events extends EventMap = EventMap>(
  options: OutboxOptions<Db, Tx, Given, Events>,
): Outbox<Db, Tx, Given, DraftOf<Events>>;
export function createOutbox<Db, Tx, Given, B extends Begins, const Events extends EventMap>(
  options: OutboxOptions<Db, Tx, Given, Events> | LibraryOutboxOptions<Db, Tx, B, Events>,
): Outbox<Db, Tx, Given, DraftOf<Events>> | Outbox<Db, Tx, Tx, DraftOf<Events>, B> {
  checkOptions("createOutbox", options, ["store", "tx", "events", "maxPayloadBytes", "clock", "random", "newId"]);
  const { store, tx } = options;
  if (!store?.writer || !store.wake || (!isHandle(tx) && !("transactor" in store && store.transactor))) {
    throw new WaybillError("INVALID_OPTION", `createOutbox needs a store, such as sqlite({ path }), not ${show(store)}`);
  }
  if (isHandle<Db, Tx, B>(tx)) return outboxOf<Db, Tx, Tx, Events, B>(libraryWay(store.writer as SqlWriter, tx), options);
  const { writer, transactor } = store as OutboxOptions<Db, Tx, Given, Events>["store"];
  return outboxOf<Db, Tx, Given, Events>(ownWay(writer, transactor, tx), options);
}

type Rest<Events extends EventMap> = Omit<LibraryOutboxOptions<never, never, Begins, Events>, "tx" | "store"> & {
  readonly store: { readonly wake: Wake };
};

function outboxOf<Db, Tx, Given, Events extends EventMap, B extends Begins = { readonly db: Db; readonly tx: Tx }>(
  way: Way<Db, Tx, Given>,
  options: Rest<Events>,
): Outbox<Db, Tx, Given, DraftOf<Events>, B> {
  const { wake } = options.store;
  const { synchronous } = way;
  const catalogue = options.events === undefined ? null : defineEvents(options.events);
  const clock = options.clock ?? systemClock;
  const newId = options.newId ?? uuidv7(clock, options.random ?? systemRandom);
  const maxPayloadBytes = whole("maxPayloadBytes", options.maxPayloadBytes ?? DEFAULT_MAX_PAYLOAD_BYTES);

  const notify = (): void => wake.notify();
  let hinting = false;
  /** For a transaction whose end is not reported: most end within `unseenMs`. If a relay looks too early, its next poll finds the event. */
  const hint = (): void => {
    if (synchronous) wake.notify(); // a waiting relay goes on after the caller's synchronous code, and so after its commit
    if (hinting) return;
    hinting = true;
    void clock.sleep(unseenMs).then(() => {
      hinting = false;
      wake.notify();
    });
  };

  /** A promise only for a draft whose schema gives one. */
  const ready = (draft: Draft, mayWait: boolean): Row | Promise<Row> => {
    const fitted = catalogue === null ? draft : fit(catalogue, draft);
    if (!(fitted instanceof Promise)) return prepare(fitted, newId, maxPayloadBytes);
    const row = fitted.then((late) => prepare(late, newId, maxPayloadBytes));
    row.catch(() => undefined); // when another draft is refused first, this promise is never awaited
    if (mayWait) return row;
    throw new WaybillError(
      "ASYNC_SCHEMA",
      `the schema of ${draft.type} is asynchronous, and a transaction of this store does not wait for it: use outbox.transaction`,
    );
  };

  function add<G>(tx: Given, given: OneOrList<DraftOf<Events>, G>): Promise<AddedFor<G>> {
    if (tx === undefined || tx === null) {
      throw new WaybillError("NO_TRANSACTION", `outbox.add was given ${show(tx)} in place of a transaction`);
    }
    const rows = listed(given as OneOrMany).map((draft) => ready(draft, !synchronous));
    if (rows.length === 0) return Promise.resolve([] as unknown as AddedFor<G>);
    const added = areReady(rows) ? way.append(tx, rows) : all(rows).then((late) => way.append(tx, late));
    const told = (): void => void (way.onEnd(tx, notify) || hint());
    if (synchronous) told();
    return added.then((each) => {
      if (!synchronous) told();
      return (Array.isArray(given) ? each : each[0]!) as AddedFor<G>;
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
        const value = await way.transaction(db, (tx) => {
          const rows: (Row | Promise<Row>)[] = (buffer = []);
          return after(work(tx as TxOf<B, typeof db>, events), (result) => {
            buffer = null;
            wrote = rows.length > 0;
            const now = areReady(rows);
            const own = reclaim(tx);
            const last = now ? way.last(own, rows) : all(rows).then((late) => way.last(own, late));
            return last === null || (now && synchronous) ? result : last.then(() => result);
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

const unseenMs = 10;

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

function all(rows: readonly (Row | Promise<Row>)[]): Promise<readonly Row[]> {
  return Promise.all(rows.map(async (row) => row));
}

/** Goes on at once where there is no promise to wait for: within a synchronous transaction, no other code may run in between. */
function after<T>(value: T | PromiseLike<T>, next: (value: T) => T | Promise<T>): T | Promise<T> {
  return isThenable(value) ? Promise.resolve(value).then(next) : next(value);
}
