import type { Assignment, Unreadable } from "../../../contracts/source.ts";
import type { Clock } from "../../../core/clock.ts";
import type { Envelope } from "../../../core/event.ts";
import type { Room } from "../../../core/room.ts";
import { within } from "../../../core/time.ts";
import { idOfBytes, unreadableEnvelope } from "../../../core/unreadable.ts";
import type { Wake } from "../../../core/wake.ts";
import type { Commits } from "./commits.ts";
import { envelopeOf } from "../message.ts";
import type { Owned } from "./owned.ts";
import type { LogItem } from "./records.ts";
import type { SessionState } from "./rounds.ts";

export interface KafkaReceived {
  readonly topic: string;
  readonly envelope: Envelope;
  readonly unreadable?: Unreadable;
  readonly assignment: Assignment;
  readonly bytes: number;
  /** A second call does nothing. Resolves at once, but in a retiring session when the broker has it, or after `flushMs`. */
  ack(): Promise<void>;
  aside(): void;
}

interface DeliveriesOptions {
  readonly clock: Clock;
  readonly flushMs: number;
  readonly commits: Commits<Owned>;
  readonly wake: Wake;
}

/** Takes what was fetched, one message at a time; every partition has its turn. Undefined when there is none, or no room for the next. */
export function createDeliveries(
  state: SessionState,
  { clock, flushMs, commits, wake }: DeliveriesOptions,
): (room: Room) => KafkaReceived | undefined {
  let turn = 0;

  const deliver = (partition: Owned, item: LogItem, room: Room): KafkaReceived => {
    const { first, last, bytes } = item;
    const taken = room.take(bytes);
    const acknowledge = partition.ledger.open(first, last);
    let held: "in hand" | "aside" | "acked" = "in hand";
    state.inHand += 1;
    const free = (now: "aside" | "acked"): void => {
      if (held === "in hand") state.inHand -= 1;
      if (held !== "acked") held = now;
      if (held === "acked") {
        taken.ack();
        partition.open.delete(release);
      } else taken.aside();
      wake.notify();
      state.fetching?.taken();
    };
    const release = (): void => free("acked");
    partition.open.add(release);
    return {
      topic: partition.topic,
      ...readOf(partition, item),
      ...{ assignment: partition.assignment, bytes },
      async ack() {
        if (held === "acked") return;
        free("acked");
        if (acknowledge()) commits.note(partition);
        if (state.retiring) await within(clock, flushMs, commits.flush());
      },
      aside: () => free("aside"),
    };
  };

  return (room) => {
    const { owned, fetching } = state;
    for (let n = 0; n < owned.length; n++) {
      const partition = owned[turn % owned.length]!;
      for (let item = partition.queue[0]; item !== undefined; item = partition.queue[0]) {
        const nothing = item.record === null && item.unreadable === undefined;
        // It keeps its turn: smaller ones of other partitions would keep it out for ever.
        if (!nothing && !room.fits(item.bytes)) return undefined;
        partition.queue.shift();
        partition.bytes -= item.bytes;
        fetching?.taken();
        if (nothing) {
          if (partition.ledger.open(item.first, item.last)()) commits.note(partition);
          continue;
        }
        turn += 1;
        return deliver(partition, item, room);
      }
      turn += 1;
    }
    return undefined;
  };
}

function readOf({ index }: Owned, { first, last, record, unreadable }: LogItem): Pick<KafkaReceived, "envelope" | "unreadable"> {
  const found = unreadable ?? envelopeOf(record!);
  if (typeof found !== "string" && "id" in found) return { envelope: found };
  const { why, raw } = typeof found === "string" ? { why: found, raw: record!.raw } : found;
  const place = `partition ${index}, ${record !== null || first === last ? `offset ${last}` : `offsets ${first} to ${last}`}`;
  // A topic that is deleted and recreated has other messages at the same offsets.
  const id = `unreadable:${index}@${last}:${idOfBytes(raw).slice(-16)}`;
  return { envelope: unreadableEnvelope(id), unreadable: { why: `${why} (${place})`, raw: Uint8Array.from(raw) } };
}
