import type { Outgoing, PublishResult } from "../../../contracts/sink.ts";
import { asError, WaybillError } from "../../../core/errors.ts";
import { orAborted } from "../../../core/time.ts";
import { stored, unavailable } from "../../kit/results.ts";
import { BatchWriter } from "./batch-writer.ts";
import type { BatchAnswer } from "./batch.ts";
import { loadFlights, type Flight } from "./flights.ts";
import type { Link } from "../link.ts";
import type { Places } from "./lots.ts";
import { createRemainder, type Remainder } from "./remainder.ts";
import type { Producer } from "./producer.ts";
import type { Producers } from "./producers.ts";
import { createPatience, ruleOn, type Ruling } from "./ruling.ts";
import { isTopic, type Directory } from "../topics.ts";

export interface PublishingOptions {
  readonly link: Link;
  readonly directory: Directory;
  readonly maxBytes: number;
  readonly producers: Producers;
}

/** Between two looks for a partition's new leader. */
const againMs = 100;

/** Loads a batch per partition, sends them and rules on the answers, until every message has its result. Returns the last writer used. */
export async function publishAll(
  options: PublishingOptions,
  messages: readonly Outgoing[],
  first: BatchWriter,
  signal: AbortSignal,
): Promise<{ readonly results: readonly PublishResult[]; readonly writer: BatchWriter }> {
  const { link, directory, maxBytes } = options;
  const { shown, clock } = link;
  const remainder = createRemainder(messages);
  const patience = createPatience();
  const sender = createSender(options, signal);
  let writer = first;

  const load = (places: Places): readonly Flight[] =>
    loadFlights({
      ...{ messages, remainder, places, maxBytes, shown, writer, limits: patience.limits, now: clock.now() },
      forget: (topic) => directory.forget(topic),
    });
  /** True when its partition has to be looked up before it is sent again. */
  const conclude = (flight: Flight, answer: BatchAnswer): boolean => {
    const ruling = ruleOn(flight, answer, shown, messages[flight.indexes[0]!]!.envelope.id);
    const { result, again = false, forget = false, spent } = ruling;
    if (forget) directory.forget(flight.batch.topic);
    if (spent !== undefined) sender.endProducer(spent);
    if (result === stored) remainder.store(flight.indexes);
    else if (result !== null && !patience.has(flight, ruling)) for (const index of flight.indexes) remainder.stop(index, result);
    return again;
  };

  try {
    let places = await look(directory, messages, remainder, signal);
    while (places !== null) {
      const flights = load(places);
      if (flights.length === 0) break;
      const answers = await sender.send(flights);
      if ("status" in answers) {
        remainder.stopAll(answers);
        break;
      }
      // The bytes of a batch that was lost may still be on their way: they must not be overwritten.
      if (answers.some((answer) => "lost" in answer)) writer = new BatchWriter();
      const moved = flights.filter((flight, i) => conclude(flight, answers[i]!));
      if (moved.length === 0 || remainder.waiting().length === 0) continue;
      await clock.sleep(againMs, signal);
      places = await look(directory, messages, remainder, signal);
    }
    if (places === null) remainder.stopAll(calledOff(shown));
    return { results: remainder.results, writer };
  } finally {
    sender.release();
  }
}

const calledOff = (shown: string): PublishResult =>
  unavailable(new WaybillError("DESTINATION_UNAVAILABLE", `the publish was called off before it went to ${shown}`));

/** Looks up the topics of the waiting messages; null when the publish is called off first. */
async function look(
  directory: Directory,
  messages: readonly Outgoing[],
  remainder: Remainder,
  signal: AbortSignal,
): Promise<Places | null> {
  if (signal.aborted) return null;
  const topics = new Set<string>();
  for (const index of remainder.waiting()) topics.add(messages[index]!.topic);
  const found = directory.find([...topics].filter(isTopic), signal).catch((error: unknown) => asError(error));
  return orAborted<Places | null>(found, signal, () => null);
}

interface Sender {
  /** An answer for each flight, or why there is no producer to send with. */
  send(flights: readonly Flight[]): Promise<readonly BatchAnswer[] | PublishResult>;
  /** The next flights go with another producer. */
  endProducer(how: NonNullable<Ruling["spent"]>): void;
  release(): void;
}

function createSender({ link, producers }: PublishingOptions, signal: AbortSignal): Sender {
  let producer: Producer | null = null;
  const release = (): void => {
    if (producer !== null) producers.give(producer);
    producer = null;
  };
  return {
    async send(flights) {
      if (signal.aborted) return calledOff(link.shown);
      try {
        if (producer?.spent === true) release();
        producer ??= await producers.take(signal);
      } catch (error) {
        return unavailable(asError(error));
      }
      return producer.send(
        flights.map(({ batch }) => batch),
        signal,
      );
    },
    endProducer(how) {
      if (how === "number") producer?.disown();
      producer?.end();
    },
    release,
  };
}
