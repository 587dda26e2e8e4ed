import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { follow, onAbort, orAborted, persist } from "../../core/time.ts";

/** A connection ends once and is not repaired. The caller that needs another dials again. */
interface Ending {
  readonly ended: AbortSignal;
}

export const closedHere = (shown: string): WaybillError => new WaybillError("STOPPED", `the connection to ${shown} was closed`);

export const notWaitedFor = (shown: string): WaybillError => new WaybillError("STOPPED", `connecting to ${shown} was called off`);

/** Calls `over` once the connection has ended, or could not be opened. */
export function whenOver(opening: Promise<Ending>, over: () => void): void {
  opening.then(({ ended }) => void onAbort(ended, over), over);
}

/** A shared connection. One attempt serves all callers that wait. */
export interface Shared<Connection> {
  /** Dials when there is no connection, and again when it has ended. */
  open(signal: AbortSignal): Promise<Connection>;
  /** Hands the current connection to the caller, so that the next `open` dials; null when there is none. */
  handOver(): Promise<Connection> | null;
}

export function oneConnection<Connection extends Ending>(shown: string, dial: () => Promise<Connection>): Shared<Connection> {
  let current: Promise<Connection> | null = null;
  const open = (): Promise<Connection> => {
    const opening = (current = dial());
    whenOver(opening, () => {
      if (current === opening) current = null;
    });
    return opening;
  };
  return {
    open: (signal) =>
      orAborted(current ?? open(), signal, () => {
        throw notWaitedFor(shown);
      }),
    handOver() {
      const given = current;
      current = null;
      return given;
    },
  };
}

/** Dials the next address, and after a failure those behind it, each once. It never waits in between: the caller decides when to retry. */
export function inTurn<Address, Connection>(
  addresses: readonly Address[],
  dial: (address: Address) => Promise<Connection>,
): () => Promise<Connection> {
  let turn = 0;
  return () => {
    // A position of this call: concurrent calls would otherwise take addresses from it.
    let at = turn;
    return persist(
      () => {
        const address = addresses[at++ % addresses.length]!;
        turn = at;
        return dial(address);
      },
      (error, tried) =>
        tried >= addresses.length || isWaybillError(error, "DRIVER_MISSING") || isWaybillError(error, "STOPPED") ? null : Promise.resolve(),
    );
  };
}

/** A connection that ends when one of the signals aborts, also while it is dialled. */
export async function endingWith<Connection extends Ending & { end(why: Error): void }>(
  shown: string,
  signals: readonly AbortSignal[],
  dial: (signal: AbortSignal) => Promise<Connection>,
): Promise<Connection> {
  const { signal, release } = follow(...signals);
  try {
    if (signal.aborted) throw closedHere(shown);
    const connection = await dial(signal);
    for (const ending of signals)
      onAbort(
        connection.ended,
        onAbort(ending, () => connection.end(closedHere(shown))),
      );
    return connection;
  } finally {
    release();
  }
}
