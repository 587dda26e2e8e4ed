import type { Clock } from "../../core/clock.ts";
import type { Api } from "./api.ts";
import { waitingFor } from "./consumers.ts";
import { stateOf } from "./streams.ts";

/** Knows, of a topic that shares its stream with others, whether the stream removed messages before they were delivered. */
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

/** What a look found: so many messages wait, none of them behind this number, and so many deliveries were made before. */
interface Mark {
  readonly waiting: number;
  readonly upTo: number;
  readonly deliveries: number;
}

const everyMs = 5_000;
/** A user without the right is refused each time, and the server logs it. */
const afterFailureMs = 60_000;
/** For somebody who does not read for hours: the newest takes the place of the one before it. */
const maxMarks = 1_000;

/**
 * A gap in the numbers says nothing here: it may be another topic's messages. So the server is asked every few seconds how many messages of
 * the topic wait. When none of those can come any more, as many deliveries must have been made. What comes and goes between two looks is
 * not seen. Ends with the api's signal or its connection.
 */
export function watchUnread({ api, clock, stream, durable, missed }: UnreadOptions): Unread {
  const { connection, signal } = api;
  let marks: Mark[] = [];
  let last = 0;
  /** Nothing before this number can come any more, and so many deliveries were made before it. */
  const settle = (number: number, delivered: number): void => {
    for (let mark = marks[0]; mark !== undefined && mark.upTo < number; mark = marks[0]) {
      marks.shift();
      if (delivered >= mark.deliveries + mark.waiting) continue;
      // Later marks have the same messages in them: they are told once.
      marks = [];
      missed();
    }
  };

  const look = async (): Promise<void> => {
    // In this order, the stream's last number is behind all that wait.
    const { waiting, deliveries } = await waitingFor(api, stream, durable);
    const { firstSeq, lastSeq } = await stateOf(api, stream);
    // What is on its way settles by itself.
    if (last >= deliveries) settle(firstSeq, deliveries);
    if (marks.length === maxMarks) marks.pop();
    if (waiting > 0) marks.push({ waiting, deliveries, upTo: lastSeq });
  };
  void (async () => {
    while (!signal.aborted && !connection.ended.aborted) {
      const waitMs = await look().then(
        () => everyMs,
        () => afterFailureMs, // what ends the reading is told by the reader
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
