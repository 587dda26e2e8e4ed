import type { LogPosition } from "../../contracts/log-tailer.ts";

/** A transaction of the log, or a part of one, with how many of its events are not settled. */
export interface Span {
  left: number;
  /** Null for a part that is not the last. */
  readonly end: LogPosition | null;
}

/** Up to which position everything is settled. */
interface Prefix {
  /** The next transaction. Its events are counted into `left` before anything is settled. */
  add(end: LogPosition | null): Span;
  /** Whatever committed before this position has been added. */
  passed(end: LogPosition): void;
  position(): LogPosition;
}

/** Everything before `start` is settled. */
export function createPrefix(start: LogPosition): Prefix {
  let spans: Span[] = [];
  let first = 0;
  let read = start;
  let settled = start;
  return {
    add(end) {
      const span = { left: 0, end };
      spans.push(span);
      return span;
    },
    passed(end) {
      read = end;
    },
    position() {
      for (; first < spans.length && spans[first]!.left === 0; first++) settled = spans[first]!.end ?? settled;
      if (first === spans.length) settled = read;
      if (first > 1_000 || first === spans.length) {
        spans = spans.slice(first);
        first = 0;
      }
      return settled;
    },
  };
}
