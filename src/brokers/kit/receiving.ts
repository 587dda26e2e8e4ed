import { WaybillError } from "../../core/errors.ts";
import { whole } from "../../core/options.ts";
import { follow, type Follower } from "../../core/signal.ts";

interface Wanted {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly prefetch: number;
  readonly waiting?: number;
  readonly bytes?: number;
  readonly stalls?: number;
}

/** Refuses a subscription that nobody could serve; gives its topics, each once. */
export function checkSubscription({ consumer, topics, prefetch, waiting = 0, bytes, stalls = 0 }: Wanted): readonly string[] {
  if (typeof consumer !== "string" || consumer === "") {
    throw new WaybillError("INVALID_OPTION", `consumer must be a name, not ${JSON.stringify(consumer)}`);
  }
  if (topics.length === 0) throw new WaybillError("INVALID_OPTION", `consumer ${consumer} needs at least one topic`);
  whole("prefetch", prefetch);
  whole("waiting", waiting, 0);
  if (bytes !== undefined) whole("bytes", bytes);
  whole("stalls", stalls, 0);
  return [...new Set(topics)];
}

/** What `begin` yields, until one of the signals aborts or nobody wants more. */
export function receiving<T>(
  signal: AbortSignal,
  closing: AbortSignal,
  begin: (ending: Follower) => AsyncGenerator<T, undefined>,
): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const ending = follow(signal, closing);
      // A generator that nobody resumes would not release it.
      ending.signal.addEventListener("abort", () => ending.release(), { once: true });
      const deliveries = begin(ending);
      return {
        next: () => deliveries.next(),
        return() {
          // A generator that waits for its next message would not hear of it otherwise.
          ending.abort();
          ending.release(); // a generator that has not begun does not
          return deliveries.return(undefined);
        },
      };
    },
  };
}
