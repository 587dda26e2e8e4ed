import type { Clock } from "../../core/clock.ts";
import type { Awaited } from "../../core/idle.ts";

/** Why there is no answer. */
export interface Unanswered {
  readonly is:
    | "nobody" // the server reports that nothing listens to the subject
    | "forbidden"
    | "unfit" // it cannot be sent because of its own content or size
    | "unsent" // there was no connection any more
    | "silence"; // it may have been sent
  readonly error: Error;
}

/** The data of the answer, or why there is none. */
export type NatsAnswer = Uint8Array | Unanswered;

/** Messages that were sent to one subject together. Each has a number of its own, under which its answer comes. */
interface Flight {
  readonly subject: string;
  readonly first: number;
  readonly since: number;
  /** 1 for each place that has no answer yet. */
  readonly open: Uint8Array;
  left: number;
  readonly take: (answer: NatsAnswer, place: number) => void;
  readonly land: () => void;
}

export interface Requests {
  /**
   * Sends `count` messages to a subject. `send` gets the number of the first one; the others follow it. `take` gets each one's answer
   * once, with its place. Resolves when all have one; never rejects.
   */
  begin(subject: string, count: number, send: (first: number) => void, take: Flight["take"]): Promise<void>;
  answered(number: number, answer: NatsAnswer): void;
  /** The server refused a message. Such errors come in the order of the messages, and name only the subject. */
  refused(subject: string, error: Error): void;
  /** No more answers will come, so nothing more is sent. */
  end(answer: Unanswered): void;
  /** Ends requests that were sent long ago: no caller waits for them any more. */
  sweep(): void;
}

const forgottenMs = 60_000;

/** Matches answers by number, without a promise, timer or error for each message. */
export function createRequests(clock: Clock, awaited: Awaited): Requests {
  const flights = new Set<Flight>();
  let last = 0;
  let over: Unanswered | null = null;
  const settle = (flight: Flight, place: number, answer: NatsAnswer): void => {
    if (flight.open[place] !== 1) return;
    flight.open[place] = 0;
    flight.take(answer, place);
    if (--flight.left > 0) return;
    flights.delete(flight);
    flight.land();
  };
  const settleAll = (flight: Flight, answer: Unanswered): void => {
    for (let place = 0; place < flight.open.length; place++) settle(flight, place, answer);
  };

  return {
    async begin(subject, count, send, take) {
      if (count === 0) return;
      await new Promise<void>((resolve) => {
        const came = awaited.begin();
        const land = (): void => {
          came();
          resolve();
        };
        const flight = { subject, first: last + 1, since: clock.monotonic(), open: new Uint8Array(count).fill(1), left: count, take, land };
        flights.add(flight);
        last += count;
        if (over !== null) return settleAll(flight, over);
        try {
          send(flight.first);
        } catch (error) {
          settleAll(flight, { is: "unsent", error: error as Error });
        }
      });
    },
    answered(number, answer) {
      for (const flight of flights) {
        const place = number - flight.first;
        if (place >= 0 && place < flight.open.length) return settle(flight, place, answer);
      }
    },
    refused(subject, error) {
      for (const flight of flights)
        if (flight.subject === subject) return settle(flight, flight.open.indexOf(1), { is: "forbidden", error });
    },
    end(answer) {
      over ??= answer;
      for (const flight of flights) settleAll(flight, answer);
    },
    sweep() {
      const before = clock.monotonic() - forgottenMs;
      for (const flight of flights) {
        if (flight.since > before) return;
        settleAll(flight, { is: "silence", error: new Error(`there was no answer within ${forgottenMs} ms`) });
      }
    },
  };
}
