import type { Clock } from "../../core/clock.ts";
import type { Awaited } from "../../core/idle.ts";

/** Why there is no answer. */
export interface Unanswered {
  readonly is:
    | "nobody" // the server knows no one who listens to the subject
    | "forbidden"
    | "unfit" // it cannot be sent, for what it is
    | "unsent" // there was no connection any more
    | "silence"; // it may have been sent
  readonly error: Error;
}

/** The data of what came back, or why nothing did. */
export type NatsAnswer = Uint8Array | Unanswered;

/** What was sent to one subject at once. Each message has a number of its own, at which its answer comes. */
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
   * Sends `count` messages to a subject. `send` gets the number of the first one; the others follow it. `take` is told each one's answer
   * once, by its place. Resolves when all have one; never rejects.
   */
  begin(subject: string, count: number, send: (first: number) => void, take: Flight["take"]): Promise<void>;
  answered(number: number, answer: NatsAnswer): void;
  /** Errors come in the order of what they are about, and name no more than its subject. */
  refused(subject: string, error: Error): void;
  /** Nothing will be answered any more, and so nothing is sent. */
  end(answer: Unanswered): void;
  /** Clears away what was asked long ago: nobody waits for it any more. */
  sweep(): void;
}

const forgottenMs = 60_000;

/** Answers by number: no promise, timer or error for one of them. */
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
