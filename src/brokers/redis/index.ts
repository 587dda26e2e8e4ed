import type { Examination } from "../../contracts/doctor.ts";
import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { systemRandom } from "../../core/random.ts";
import { shared, within } from "../../core/time.ts";
import { createAcks } from "./acks.ts";
import { createExamination } from "./examine.ts";
import { createLink } from "./link.ts";
import { createSink } from "./sink.ts";
import { createSource } from "./source.ts";
import { provisionStreams, purgeStream } from "./streams.ts";
import { placeOf } from "./url.ts";

export interface RedisOptions {
  /**
   * redis://user:password@host:6379/0, or rediss:// for TLS. With TLS, the parameters ca, cert and key may name files: `ca` for an
   * authority that the system does not know, `cert` and `key` for a client certificate.
   */
  readonly url: string;
  /** Creates a stream with its first message or its first consumer, and a consumer's group when it first receives. @default false */
  readonly provision?: boolean;
  /** The largest message, attributes and headers included; the server's own limit where that is lower. @default 1048576 */
  readonly maxBytes?: number;
  /**
   * How many replicas must have a message before it counts as stored (WAIT). With fewer it is unknown, and published again. @default 0
   */
  readonly replicas?: number;
  /** Timeout for connecting and for an answer. The connection is given up after it. @default 5000 */
  readonly timeoutMs?: number;
  readonly clock?: Clock;
}

export interface Redis extends Sink, Source, Examination {
  readonly can: { readonly maxBytes: number; readonly run: 1; readonly assign: false };
  /** Creates these streams, and in each a group per consumer that reads from the beginning. What exists stays as it is. */
  provision(topics: readonly string[], consumers?: readonly string[]): Promise<void>;
  /**
   * Deletes entries older than `before` from these streams, and answers how many. It keeps every entry that a group has still to
   * acknowledge, and deletes nothing from a stream without groups.
   */
  purge(before: Date, topics: readonly string[]): Promise<number>;
}

const known = ["url", "provision", "maxBytes", "replicas", "timeoutMs", "clock"] satisfies (keyof RedisOptions)[];

/** An entry with more bytes is not read, unless `maxBytes` allows for it: another program wrote it, and one answer would fill the memory. */
const mostEntryBytes = 64 * 1024 * 1024;

/** Acks that the server does not answer by then are lost, and their events are delivered once more. */
const closeMs = 1_000;

/** Redis Streams: a topic is a stream, a consumer is a group. */
export function redis(options: RedisOptions): Redis {
  checkOptions("redis", options, known);
  if (typeof options.url !== "string") throw new WaybillError("INVALID_OPTION", `url must be a text, not ${show(options.url)}`);
  const { provision = false, clock = systemClock } = options;
  const own = whole("maxBytes", options.maxBytes ?? 1024 * 1024);
  const timeoutMs = positive("timeoutMs", options.timeoutMs ?? 5_000);
  const copies = { replicas: whole("replicas", options.replicas ?? 0, 0), withinMs: Math.ceil(timeoutMs / 2) };
  const closing = shared(new AbortController());
  const link = createLink({ place: placeOf(options.url), clock, timeoutMs });
  const acks = createAcks(link);
  const maxBytes = (): number => Math.min(own, link.serverMaxBytes);
  const newId = uuidv7(clock, systemRandom);

  let closed: Promise<void> | null = null;
  const close = async (): Promise<void> => {
    closing.abort();
    await within(clock, closeMs, acks.idle());
    link.close();
  };

  return {
    name: "redis",
    can: {
      get maxBytes() {
        return maxBytes();
      },
      run: 1,
      assign: false,
    },
    ...createSink({ link, provision, maxBytes, copies }),
    ...createSource({ link, acks, clock, newId, provision, entryBytes: Math.max(own, mostEntryBytes), closing: closing.signal }),
    ...createExamination(link, copies.replicas),
    connect: async (signal) => void (await link.open(signal)),
    provision: (topics, consumers = []) => provisionStreams(link, topics, consumers),
    purge: (before, topics) => purgeStream(link, before, topics),
    [Symbol.asyncDispose]: () => (closed ??= close()),
  };
}
