import type { Applied, Inbox, InboxKey, Seat } from "../../src/contracts/inbox.ts";
import type { LeaseStore } from "../../src/contracts/lease-store.ts";
import type { Letters } from "../../src/contracts/letters.ts";
import type { Action, ActionReport, DeadFilter, Operator } from "../../src/contracts/operator.ts";
import type { OutboxStore, Window } from "../../src/contracts/outbox-store.ts";
import type { Store } from "../../src/contracts/store.ts";
import type { Clock } from "../../src/core/clock.ts";
import { WaybillError } from "../../src/core/errors.ts";
import { SessionEnded } from "../../src/core/blameless.ts";
import { orAborted } from "../../src/core/time.ts";
import { LANES } from "../../src/core/lane.ts";
import { createMutex } from "../../src/core/queue.ts";
import { createWake } from "../../src/core/wake.ts";
import { marksEvent, parkedVersion } from "../../src/stores/kit/letters.ts";
import { createLeaseStore } from "../../src/stores/memory/lease-store.ts";
import { createConsumers } from "../../src/stores/memory/consumers.ts";
import { createLetters, keepLetter } from "../../src/stores/memory/letters.ts";
import { createOperator } from "../../src/stores/memory/operator.ts";
import { createOutboxStore } from "../../src/stores/memory/outbox-store.ts";
import { schema } from "../../src/stores/memory/tables.ts";
import { claimInPasses } from "./claim.ts";
import { createDatabase, type Database, type Image, type Savepoint, type ServerTx } from "./database.ts";
import type { Process } from "./scheduler.ts";
import type { Server, Trip } from "./server.ts";

/** A transaction in a client's hand. */
export interface SimTx {
  readonly server: ServerTx;
  /** Moves the counter by so many, and says where it stands; its row stays locked until the end. */
  count(aggregate: string, by: number): Promise<number>;
  write(id: string, row: unknown): void;
  effect(effect: unknown): void;
  /** Null unless the mark is there already. Another transaction that is about to make it is waited for. */
  mark(name: string, handlerVersion: number, letter?: bigint): Promise<Applied | null>;
  savepoint(): Savepoint;
  rollbackTo(savepoint: Savepoint): Promise<void>;
}

export interface SimDb {
  begin(): Promise<SimTx>;
  commit(tx: SimTx): Promise<void>;
  rollback(tx: SimTx): Promise<void>;
}

export type SimStore = Store<SimDb, SimTx> & { readonly db: SimDb };

/** What the server itself has done for a process, whether or not its answer is heard. */
interface Heard {
  taken?(won: ReadonlyMap<number, bigint>): void;
  committed?(tx: ServerTx): void;
  /** With a consumer, to its letters. */
  operated?(action: "redrive" | "discard", ids: readonly string[], consumer?: string): void;
}

export interface StoreServer {
  readonly server: Server;
  readonly database: Database;
  readonly operator: Operator;
  readonly letters: Letters;
  /** The store as a process has it. */
  open(process: Process, heard?: Heard): SimStore;
  failOver(replica: Image): void;
}

const allLanes = Array.from({ length: LANES }, (_, lane) => lane);
const unavailable = (sent: boolean): WaybillError =>
  new WaybillError("STORE_UNAVAILABLE", sent ? "the link to the store was lost" : "the store refuses connections");

/** The memory store's claims, settles, leases and operator, behind a network, over a database whose transactions overlap. */
export function createStoreServer(clock: Clock, server: Server, oneWriter: boolean): StoreServer {
  const database = createDatabase(clock, oneWriter);
  const build = (): { outbox: OutboxStore; leases: LeaseStore; letters: Letters; operator: Operator } => {
    const { tables } = database.image;
    return {
      outbox: createOutboxStore(tables, clock),
      leases: createLeaseStore(tables, clock),
      letters: createLetters(tables, clock),
      operator: createOperator(tables, clock),
    };
  };
  let parts = build();
  return {
    server,
    database,
    get operator() {
      return parts.operator;
    },
    get letters() {
      return parts.letters;
    },
    failOver(replica) {
      database.failOver(replica);
      parts = build();
    },
    open(process, heard = {}) {
      // A process has one connection to a file, and what is urgent goes first on it.
      const mutex = createMutex();
      const inTurn = <T>(work: () => Promise<T>, urgent?: "urgent"): Promise<T> => (oneWriter ? mutex.run(work, urgent) : work());
      const read = <T>(execute: () => T | Promise<T>): Promise<T> => server.call(process, execute, unavailable);
      const write: Write = (execute, urgent) => inTurn(() => server.call(process, () => database.alone(execute), unavailable), urgent);
      const onLanes = <T>(lanes: Iterable<number>, execute: () => T | Promise<T>): Promise<T> =>
        inTurn(() => server.call(process, () => database.onLanes(lanes, execute), unavailable));
      const operate = (action: "redrive" | "discard", filter: DeadFilter, by: Action): Promise<ActionReport> =>
        onLanes(allLanes, async () => {
          const report = await parts.operator[action](filter, by);
          if (!by.dryRun && report.ids.length > 0) heard.operated?.(action, report.ids);
          return report;
        });
      const db = connect(process, server, database, heard.committed);
      const inTransaction = async <T>(work: (tx: SimTx) => T | Promise<T>): Promise<T> => {
        const tx = await db.begin();
        let result: T;
        try {
          result = await work(tx);
        } catch (error) {
          await db.rollback(tx);
          throw error;
        }
        await db.commit(tx);
        return result;
      };
      return {
        name: "simulated",
        db,
        schema: { ...schema, check: () => read(() => undefined) },
        writer: {
          synchronous: false,
          async append(tx, rows) {
            if (typeof tx?.server !== "object" || !tx.server.open)
              throw new WaybillError("NO_TRANSACTION", "this handle has no open transaction");
            const copies = rows.map((row) => (typeof row.payload === "string" ? row : { ...row, payload: Uint8Array.from(row.payload) }));
            return read(() => database.append(tx.server, copies));
          },
        },
        transactor: { transaction: (_, work) => inTransaction(work) },
        outbox: {
          claim: (holding, request) => {
            // What goes over the wire is a copy.
            const asked = { relay: holding.relay, lanes: new Map(holding.lanes) };
            const claim = (trip: Trip): Promise<Window> =>
              database.onLanes(asked.lanes.keys(), (alive) => {
                const step: Trip = async () => {
                  // Nothing is far away from a file, and nobody writes to it meanwhile.
                  if (!oneWriter) await trip();
                  alive();
                };
                return claimInPasses(database.image.tables, clock, asked, request, step);
              });
            return inTurn(() => server.call(process, claim, unavailable));
          },
          payload: (claim, signal) =>
            orAborted(
              read(() => parts.outbox.payload(claim, signal)),
              signal,
              () => {
                throw unavailable(true);
              },
            ),
          settle: (relay, window, outcomes) => {
            const given = [...outcomes];
            const lanes = new Set(given.map(({ claim }) => claim.lane));
            return onLanes(lanes, () => parts.outbox.settle(relay, window, given));
          },
          release: (holding, destination, limit) => {
            const asked = { relay: holding.relay, lanes: new Map(holding.lanes) };
            return onLanes(asked.lanes.keys(), () => parts.outbox.release(asked, destination, limit));
          },
          waitingFor: (after, limit) => inTurn(() => read(() => parts.outbox.waitingFor(after, limit))),
        },
        leases: {
          look: () => read(() => parts.leases.look()),
          renew: (relay, ttlMs, window, strategy) => write(() => parts.leases.renew(relay, ttlMs, window, strategy)),
          take: (relay, lanes) =>
            onLanes(new Set(lanes), async () => {
              const won = await parts.leases.take(relay, lanes);
              if (won.size > 0) heard.taken?.(won);
              return won;
            }),
          give: (relay, lanes) => onLanes(lanes, () => parts.leases.give(relay, lanes)),
          leave: (relay) => onLanes(allLanes, () => parts.leases.leave(relay)),
        },
        inbox: createInbox(clock, database, db, { inTurn, write }),
        letters: {
          groups: (filter) => read(() => parts.letters.groups(filter)),
          list: (filter) => read(() => parts.letters.list(filter)),
          show: (seq) => read(() => parts.letters.show(seq)),
          redrive: (filter, by) =>
            write(async () => {
              const report = await parts.letters.redrive(filter, by);
              if (!by.dryRun && report.ids.length > 0) heard.operated?.("redrive", report.ids, filter.consumer);
              return report;
            }),
          discard: (filter, by) => write(() => parts.letters.discard(filter, by)),
          redriven: (consumer, topic, limit) => read(() => parts.letters.redriven(consumer, topic, limit)),
        },
        consumers: { look: (consumer) => read(() => createConsumers(database.image.tables, database.image, clock).look(consumer)) },
        operator: {
          status: () => read(() => parts.operator.status()),
          list: (filter) =>
            read(async () => {
              const { limit, ...rest } = filter;
              const all = await parts.operator.list({ ...rest, limit: Infinity });
              return [...all].sort((a, b) => (a.seq < b.seq ? 1 : -1)).slice(0, limit);
            }),
          show: (id) => read(() => parts.operator.show(id)),
          redrive: (filter, by) => operate("redrive", filter, by),
          discard: (filter, by) => operate("discard", filter, by),
          purge: (before, by, options) => write(() => parts.operator.purge(before, by, options)),
        },
        wake: createWake(),
        [Symbol.asyncDispose]: async () => undefined,
      };
    },
  };
}

/** A process's connections: what is open when it dies, or when its link breaks, is rolled back by the server. */
function connect(process: Process, server: Server, database: Database, committed: ((tx: ServerTx) => void) | undefined): SimDb {
  const open = new Set<ServerTx>();
  process.onCrash(() => open.forEach((tx) => database.rollback(tx)));
  const within = async <T>(tx: ServerTx, execute: () => T | Promise<T>): Promise<T> => {
    try {
      return await server.call(process, execute, unavailable);
    } catch (error) {
      if (error instanceof WaybillError && error.code === "STORE_UNAVAILABLE") database.rollback(tx);
      throw error;
    }
  };
  const refuse = (tx: ServerTx): void => {
    if (!tx.open) throw new WaybillError("NO_TRANSACTION", "this transaction has ended");
  };
  return {
    async begin() {
      let begun: ServerTx | undefined;
      const started = async (): Promise<ServerTx> => {
        begun = await database.begin();
        if (process.alive) open.add(begun);
        else database.rollback(begun);
        return begun;
      };
      const tx = await server.call(process, started, unavailable).catch((error: unknown) => {
        if (begun !== undefined) database.rollback(begun);
        throw error;
      });
      return {
        server: tx,
        count: (aggregate, by) => within(tx, () => database.count(tx, aggregate, by)),
        write: (id, row) => void tx.written.push([id, row]),
        effect: (effect) => {
          refuse(tx);
          tx.effects.push(effect);
        },
        mark: (name, handlerVersion, letter) =>
          within(tx, async () => {
            await database.lock(tx, `mark ${name}`);
            const { marks, tables } = database.image;
            if (letter !== undefined && (tables.letters.get(letter)?.redrivenAt ?? null) === null) return "seen";
            const made = marks.get(name);
            if (made?.finished === false) throw new WaybillError("EFFECT_UNFINISHED", "an earlier attempt committed inside its handler");
            const parked = made?.handlerVersion === parkedVersion;
            if (parked && letter === undefined) return "parked";
            if (made !== undefined && !parked) {
              if (letter !== undefined) tables.letters.delete(letter);
              return "seen";
            }
            tx.marks.push({ name, handlerVersion, finished: false });
            tx.letter = letter ?? null;
            return null;
          }),
        savepoint: () => database.savepoint(tx),
        rollbackTo: (savepoint) => within(tx, () => database.rollbackTo(tx, savepoint)),
      };
    },
    async commit({ server: tx }) {
      let sent = false;
      try {
        await server.call(
          process,
          () => {
            database.commit(tx);
            committed?.(tx);
          },
          (maybe) => {
            sent = maybe;
            return unavailable(maybe);
          },
        );
      } catch (cause) {
        database.rollback(tx); // if it has not come to that; the server sees that the link is gone
        if (sent) throw new WaybillError("COMMIT_UNKNOWN", "the link was lost while COMMIT was under way", { cause });
        throw cause;
      } finally {
        open.delete(tx);
      }
    },
    async rollback({ server: tx }) {
      // Open until then: where the request is lost and the process dies, the server still sees its link end.
      await server.call(process, () => database.rollback(tx), unavailable).catch(() => database.rollback(tx));
      open.delete(tx);
    },
  };
}

type Write = <T>(execute: () => T | Promise<T>, urgent?: "urgent") => Promise<T>;

interface Turns {
  inTurn<T>(work: () => Promise<T>): Promise<T>;
  readonly write: Write;
}

function createInbox(clock: Clock, database: Database, db: SimDb, { inTurn, write }: Turns): Inbox<SimTx> {
  const once: Inbox<SimTx>["once"] = async ({ consumer, id, also = [] }, handlerVersion, work, letter) => {
    const tx = await db.begin();
    let first: Applied | null = null;
    try {
      const fresh = new Set<string>();
      // In one order: two transactions with the same ids must not wait for each other.
      for (const each of [id, ...also].sort()) {
        const before = await tx.mark(nameOf({ consumer, id: each }), handlerVersion, letter);
        if (before === null) fresh.add(each);
        else if (each === id) first = before;
      }
      if (fresh.size === 0) {
        await db.rollback(tx);
        return first!;
      }
      // A handler that commits must not commit the marks of events whose turn has not come.
      const { marks } = tx.server;
      const waiting = also.length > 0 ? marks.splice(0) : [];
      await work(tx, fresh, (ids) => {
        if (!tx.server.open) throw new WaybillError("TRANSACTION_LOST", "the transaction has ended inside a handler");
        for (const mark of marks) mark.finished = true;
        const turn = new Set(ids.map((each) => nameOf({ consumer, id: each })));
        for (const mark of waiting.filter(({ name }) => turn.has(name))) marks.push(...waiting.splice(waiting.indexOf(mark), 1));
        return tx;
      });
      if (tx.server.givenUp === true) throw new WaybillError("TRANSACTION_LOST", "the transaction was rolled back inside the handler");
      marks.push(...waiting);
      if (!tx.server.open) throw new SessionEnded("the database", null);
      for (const mark of tx.server.marks) mark.finished = true;
    } catch (error) {
      await db.rollback(tx);
      throw error;
    }
    await db.commit(tx);
    return first ?? "done";
  };
  return {
    once: (...given) => inTurn(() => once(...given)),
    failed: (key) =>
      write(() => {
        const { failures } = database.image;
        const count = (failures.get(nameOf(key))?.count ?? 0) + 1;
        failures.set(nameOf(key), { count, failedAt: clock.now() });
        return count;
      }),
    park: (letter) =>
      write(() => {
        const { marks, failures, tables } = database.image;
        keepLetter(tables, letter, clock.now());
        if (!marksEvent(letter)) return;
        const name = nameOf({ consumer: letter.consumer, id: letter.envelope.id });
        failures.delete(name);
        if (!marks.has(name)) marks.set(name, { handledAt: clock.now(), handlerVersion: parkedVersion, finished: true });
      }),
    forget: (before, limit, consumer) =>
      write(() => {
        const { marks, failures } = database.image;
        const mine = (name: string): boolean => consumer === undefined || name.startsWith(`${consumer}\0`);
        const old = [...marks].filter(([name, { handledAt }]) => mine(name) && handledAt < before.getTime()).slice(0, limit);
        const counts = [...failures].filter(([name, { failedAt }]) => mine(name) && failedAt < before.getTime()).slice(0, limit);
        for (const [name] of old) marks.delete(name);
        for (const [name] of counts) failures.delete(name);
        return old.length + counts.length;
      }),
    sit: (seat, ttlMs) =>
      write(() => {
        const { seats } = database.image;
        const now = clock.monotonic();
        const taken = seats.get(placeOf(seat));
        if (taken !== undefined && !["", seat.owner].includes(taken.owner) && taken.endsAt > now) return false;
        seats.set(placeOf(seat), { ...seat, endsAt: now + ttlMs, seenAt: clock.now() });
        return true;
      }, "urgent"),
    leave: (seat) =>
      write(() => {
        const { seats } = database.image;
        if (seats.get(placeOf(seat))?.owner === seat.owner)
          seats.set(placeOf(seat), { ...seat, owner: "", endsAt: 0, seenAt: clock.now() });
      }),
  };
}

const nameOf = ({ consumer, id }: InboxKey): string => `${consumer}\0${id}`;
const placeOf = ({ consumer, topic }: Seat): string => `${consumer}\0${topic}`;
