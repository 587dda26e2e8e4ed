import type { Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import type { NewId } from "../../core/ids.ts";
import { onAbort } from "../../core/time.ts";
import type { Wake } from "../../core/wake.ts";
import { checkSubscription, receivingFrom, type Reader } from "../kit/receiving.ts";
import type { Acks } from "./acks.ts";
import { RedisRefusal, type Reply } from "./driver.ts";
import { explain, type Link } from "./link.ts";
import { openSession } from "./session.ts";

interface SourceOptions {
  readonly link: Link;
  readonly acks: Acks;
  readonly clock: Clock;
  readonly newId: NewId;
  readonly provision: boolean;
  readonly closing: AbortSignal;
}

const waitMs = 1_000;
const maxDateMs = 8.64e15;
/**
 * After a receiving without progress, entries are read one at a time until this many are acknowledged: the server may close a connection
 * for an answer that is too large. Mere deliveries do not count: the entries of a failing aggregate come first in every receiving.
 */
const carefulAcks = 256;

/**
 * A topic's consumers are the stream's groups. Entries that a session was given and did not acknowledge stay pending in the group. The
 * next session gets them first, in order, and new entries only after them.
 */
export function createSource(options: SourceOptions): Required<Pick<Source, "receive" | "oldest" | "lag">> {
  return {
    async oldest(topic, signal) {
      const { link } = options;
      const [reply] = await link.ask(await link.open(signal), [["XRANGE", topic, "-", "+", "COUNT", "1"]]).catch((error: unknown) => {
        throw explain(error, link.shown);
      });
      // An entry's id begins with the server's time in milliseconds. If its writer chose another id, the entry is as old as that says.
      const [first] = reply as readonly (readonly [Buffer, unknown])[];
      return first === undefined ? null : new Date(Math.min(Number.parseInt(String(first[0]), 10), maxDateMs));
    },
    async lag(topic, signal, consumer) {
      const { link } = options;
      const [reply] = await link.ask(await link.open(signal), [["XINFO", "GROUPS", topic]]).catch((error: unknown) => {
        if (error instanceof RedisRefusal && /no such key/i.test(error.message)) return [[]];
        throw explain(error, link.shown);
      });
      return undone(reply as readonly (readonly Reply[])[], consumer);
    },
    receive(subscription, signal) {
      const topics = checkSubscription(subscription);
      const { clock, closing } = options;
      return receivingFrom(subscription, signal, {
        ...{ clock, closing, waitMs },
        open: (ending, wake) => open({ ...subscription, topics }, options, ending, wake),
      });
    },
  };
}

/**
 * Entries that are pending in the group, and those it was not given yet. Redis before 7 does not count the latter, and later versions do
 * not know their number behind a deleted entry. Entries that were trimmed unread count until the consumer reads on.
 */
function undone(groups: readonly (readonly Reply[])[], consumer: string): number | null {
  for (const pairs of groups) {
    const group = new Map<string, Reply>();
    for (let i = 0; i < pairs.length; i += 2) group.set(String(pairs[i]), pairs[i + 1]!);
    const lag = group.get("lag");
    if (String(group.get("name")) === consumer) return typeof lag === "number" ? lag + Number(group.get("pending")) : null;
  }
  return null;
}

async function open(
  { consumer, topics, missed = () => undefined, stalls = 0 }: Subscription,
  options: SourceOptions,
  signal: AbortSignal,
  wake: Wake,
): Promise<Reader> {
  const { acks } = options;
  const session = await openSession({ ...options, consumer, topics, missed }, signal);
  onAbort(session.ended, wake.notify);
  let careful = stalls > 0 ? carefulAcks : 0;
  return {
    async next({ left, bytesLeft }) {
      session.ended.throwIfAborted();
      if (left <= 0) return null;
      const entries = await session.next(careful > 0 ? 1 : left, bytesLeft);
      return entries.map(({ id, ...entry }) => ({
        ...entry,
        ack() {
          careful -= 1;
          return acks.ack(entry.topic, consumer, id);
        },
      }));
    },
    close: session.close,
  };
}
