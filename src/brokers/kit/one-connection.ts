import { WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";

/** A connection that all share: dialled when it is first needed, and anew when it has ended. One attempt serves all who wait. */
export function oneConnection<Connection extends { readonly ended: AbortSignal }>(
  shown: string,
  dial: () => Promise<Connection>,
): (signal: AbortSignal) => Promise<Connection> {
  let opened: Promise<Connection> | null = null;
  return (signal) => {
    opened ??= dial().then(
      (connection) => {
        const forget = (): void => void (opened = null);
        if (connection.ended.aborted) forget();
        connection.ended.addEventListener("abort", forget, { once: true });
        return connection;
      },
      (error: unknown) => {
        opened = null;
        throw error;
      },
    );
    return orAborted(opened, signal, () => {
      throw new WaybillError("STOPPED", `connecting to ${shown} was called off`);
    });
  };
}
