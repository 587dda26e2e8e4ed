import type { Inbox } from "../../contracts/inbox.ts";
import { WaybillError } from "../../core/errors.ts";

/** What JavaScript throws when an answer that is whole and wrong is read. Its words say nothing to a user. */
export const isMisread = (error: unknown): boolean =>
  error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError;

export const misread = (place: string, cause?: unknown): WaybillError =>
  new WaybillError("STORE_UNAVAILABLE", `${place} answered in a way that cannot be read`, { cause });

/** The same part of a store, whose calls fail in our words when an answer cannot be read. */
export function inOurWords<Part extends object>(part: Part, place: string): Part {
  const told =
    (call: (...given: unknown[]) => unknown) =>
    (...given: unknown[]): unknown => {
      const result = call(...given);
      if (!(result instanceof Promise)) return result;
      return result.catch((error: unknown) => {
        throw isMisread(error) ? misread(place, error) : error;
      });
    };
  return Object.fromEntries(
    Object.entries(part).map(([name, of]) => [name, typeof of === "function" ? told(of as (...given: unknown[]) => unknown) : of]),
  ) as Part;
}

/** Likewise, but for `once`: what a handler throws stays as it is. */
export const inboxInOurWords = <Tx>(inbox: Inbox<Tx>, place: string): Inbox<Tx> => ({ ...inOurWords(inbox, place), once: inbox.once });
