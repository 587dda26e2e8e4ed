import type { Source, Subscription } from "../../contracts/source.ts";
import type { Clock } from "../../core/clock.ts";
import type { NewId } from "../../core/ids.ts";
import { onAbort } from "../../core/time.ts";
import type { Wake } from "../../core/wake.ts";
import { checkSubscription, receivingFrom, type Reader } from "../kit/receiving.ts";
import type { Acks } from "./acks.ts";
import { isCount, isEntryId, isList, namedIn, textOf } from "./answers.ts";
import { explain, wrong, type Link } from "./link.ts";
import { RedisRefusal, type Reply } from "./replies.ts";
import { oldestScript } from "./scripts.ts";
import { openSession } from "./session.ts";

interface SourceOptions {
  readonly link: Link;
  readonly acks: Acks;
  readonly clock: Clock;
  readonly newId: NewId;
  readonly provision: boolean;
  readonly entryBytes: number;
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
      const [first] = await link.ask(await link.open(signal), [oldestScript(topic)]).catch((error: unknown) => {
        throw explain(error, link.shown);
      });
      if (first === null) return null;
      if (!isEntryId(first)) throw wrong(link.shown, "XRANGE");
      // An entry's id begins with the server's time in milliseconds. If its writer chose another id, the entry is as old as that says.
      return new Date(Math.min(Number.parseInt(String(first), 10), maxDateMs));
    },
    async lag(topic, signal, consumer) {
      const { link } = options;
      const [reply] = await link.ask(await link.open(signal), [["XINFO", "GROUPS", topic]]).catch((error: unknown) => {
        if (error instanceof RedisRefusal && /no such key/i.test(error.message)) return [[]];
        throw explain(error, link.shown);
      });
      return undone(link, reply, consumer);
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
function undone({ shown }: Link, reply: Reply | undefined, consumer: string): number | null {
  if (!isList(reply)) throw wrong(shown, "XINFO GROUPS");
  for (const pairs of reply) {
    const group = namedIn(pairs);
    const [name, pending, lag = null] = ["name", "pending", "lag"].map((key) => group?.get(key));
    if (textOf(name) === null || !isCount(pending) || (lag !== null && typeof lag !== "number")) throw wrong(shown, "XINFO GROUPS");
    if (textOf(name) === consumer) return lag === null ? null : lag + pending;
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
