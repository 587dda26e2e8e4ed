import type { Outgoing, PublishResult } from "../../../contracts/sink.ts";
import { asError } from "../../../core/errors.ts";
import { aggregateKey, type Envelope } from "../../../core/event.ts";
import { unavailable, unfit } from "../../kit/results.ts";
import type { Address } from "../../kit/url.ts";
import { partitionOfText } from "../reading/partition.ts";
import type { Remainder } from "./remainder.ts";
import { checkTopic, noLeader, type WritableTopic } from "../topics.ts";

/** The messages that wait for one partition, by their places, in the order given. */
export interface Lot {
  readonly topic: string;
  readonly partition: number;
  readonly leader: Address;
  /** The largest batch that the partition takes from us. */
  readonly limit: number;
  readonly indexes: number[];
}

/** What is known of the topics, or why no broker could be asked. */
export type Places = ReadonlyMap<string, WritableTopic | Error> | Error;

export interface Sorting {
  readonly messages: readonly Outgoing[];
  readonly remainder: Remainder;
  readonly places: Places;
  /** The largest batch, even where the topic takes larger ones. */
  readonly maxBytes: number;
  readonly shown: string;
  /** A topic is to be looked up again. */
  forget(topic: string): void;
}

/** Sorts the waiting messages by partition. Messages that can go nowhere are refused. */
export function lotsOf(sorting: Sorting): readonly Lot[] {
  const { messages, remainder, places } = sorting;
  const lots: Lot[] = [];
  const choosers = new Map<string, Choose>();
  const turns = places instanceof Error || places.size < 2 ? null : createTurns();
  for (const index of remainder.waiting()) {
    const { topic, envelope } = messages[index]!;
    if (!remainder.isWaiting(index) || turns?.isNext(envelope, topic) === false) continue;
    let choose = choosers.get(topic);
    if (choose === undefined) choosers.set(topic, (choose = chooser(sorting, topic, lots)));
    const lot = choose(envelope);
    if ("status" in lot) remainder.stop(index, lot);
    else lot.indexes.push(index);
  }
  return lots;
}

/** Where an event goes, or why it goes nowhere. */
type Choose = (envelope: Envelope) => Lot | PublishResult;

/** Looks up once what all events of one topic have in common. */
function chooser(sorting: Sorting, topic: string, lots: Lot[]): Choose {
  const place = placeOf(sorting.places, topic);
  if ("status" in place) return () => place;
  const { partitions } = place.topic;
  const known = new Map<number, Lot | PublishResult>();
  return ({ aggregateId }) => {
    try {
      const partition = partitionOfText(aggregateId, partitions.length);
      let lot = known.get(partition);
      if (lot === undefined) known.set(partition, (lot = openLot(sorting, place, { topic, partition }, lots)));
      return lot;
    } catch (error) {
      return unfit(asError(error));
    }
  };
}

function placeOf(places: Places, topic: string): WritableTopic | PublishResult {
  try {
    checkTopic(topic, "ROUTE_FAILED");
  } catch (error) {
    return unfit(asError(error));
  }
  const place = places instanceof Error ? places : places.get(topic)!;
  return place instanceof Error ? unavailable(place) : place;
}

function openLot(
  { maxBytes, shown, forget }: Sorting,
  place: WritableTopic,
  { topic, partition }: Pick<Lot, "topic" | "partition">,
  lots: Lot[],
): Lot | PublishResult {
  const leader = place.brokers.get(place.topic.partitions[partition]!.leader);
  if (leader === undefined) {
    forget(topic);
    return unavailable(noLeader(shown, topic, partition));
  }
  const lot = { topic, partition, leader, limit: Math.min(place.limit, maxBytes), indexes: [] };
  lots.push(lot);
  return lot;
}

/** Of an aggregate that spans topics, only the leading messages with one topic may go. Those after them go when these are stored. */
function createTurns(): { isNext(envelope: Envelope, topic: string): boolean } {
  const turns = new Map<string, string | null>();
  return {
    isNext(envelope, topic) {
      const aggregate = aggregateKey(envelope);
      const turn = turns.get(aggregate);
      if (turn === topic) return true;
      turns.set(aggregate, turn === undefined ? topic : null);
      return turn === undefined;
    },
  };
}
