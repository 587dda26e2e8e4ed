import type { Clock } from "../../core/clock.ts";
import type { Api } from "./api.ts";
import { waitingFor } from "./consumers.ts";
import { stateOf } from "./streams.ts";

/** Finds out whether a stream that several topics share removed messages of one topic before they were delivered. */
export interface Unread {
  /** A message came: its number in the stream, and which delivery of the consumer it is. */
  came(sequence: number, delivery: number): void;
}

interface UnreadOptions {
  readonly api: Api;
  readonly clock: Clock;
  readonly stream: string;
  readonly durable: string;
  readonly missed: () => void;
}

/** What a look found: `waiting` messages wait, none has a number above `upTo`, and `deliveries` deliveries were made before. */
interface Mark {
  readonly waiting: number;
  readonly upTo: number;
  readonly deliveries: number;
}

const everyMs = 5_000;
/** A user without the right is refused each time, and the server logs it. */
const afterFailureMs = 60_000;
/** For a subscriber that does not read for hours: the newest mark then replaces the one before it. */
const maxMarks = 1_000;

/**
 * A gap in the numbers says nothing here: it may be another topic's messages. So the server is asked every few seconds how many messages of
 * the topic wait. When none of those can come any more, as many deliveries must have been made. Messages that come and go between two looks
 * are not noticed. Ends with the api's signal or its connection.
 */
export function watchUnread({ api, clock, stream, durable, missed }: UnreadOptions): Unread {
  const { connection, signal } = api;
  let marks: Mark[] = [];
  let last = 0;
  /** No message before `number` can come any more, and `delivered` deliveries were made before it. */
  const settle = (number: number, delivered: number): void => {
    for (let mark = marks[0]; mark !== undefined && mark.upTo < number; mark = marks[0]) {
      marks.shift();
      if (delivered >= mark.deliveries + mark.waiting) continue;
      // Later marks count the same messages, which are reported once.
      marks = [];
      missed();
    }
  };

  const look = async (): Promise<void> => {
    // In this order, no waiting message has a number above the stream's last.
    const { waiting, deliveries } = await waitingFor(api, stream, durable);
    const { firstSeq, lastSeq } = await stateOf(api, stream);
    // Deliveries that are on their way settle by themselves, in `came`.
    if (last >= deliveries) settle(firstSeq, deliveries);
    if (marks.length === maxMarks) marks.pop();
    if (waiting > 0) marks.push({ waiting, deliveries, upTo: lastSeq });
  };
  void (async () => {
    while (!signal.aborted && !connection.ended.aborted) {
      const waitMs = await look().then(
        () => everyMs,
        () => afterFailureMs, // the reader reports what ends the reading
      );
      await clock.sleep(waitMs, signal);
    }
  })();

  return {
    came(sequence, delivery) {
      last = delivery;
      settle(sequence, delivery - 1);
    },
  };
}
