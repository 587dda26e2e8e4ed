import type { Examination } from "../../contracts/doctor.ts";
import type { Sink } from "../../contracts/sink.ts";
import type { Source } from "../../contracts/source.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { shared } from "../../core/time.ts";
import { asking } from "./api.ts";
import { makeDurable } from "./consumers.ts";
import { createExamination } from "./examine.ts";
import { createLink } from "./link.ts";
import { checkSubject } from "./names.ts";
import { createSink } from "./sink.ts";
import { createSource } from "./source.ts";
import { makeStream } from "./streams.ts";
import { settingsOf } from "./url.ts";

export interface NatsOptions {
  /**
   * `nats://user:password@host:4222,host2:4222`, or `tls://…` for verified encryption. The parameters `ca`, `cert`, `key` and `credentials`
   * name files, and `replicas` is the option below.
   */
  readonly url: string;
  /** Creates streams and durable consumers when they are first needed. @default false */
  readonly provision?: boolean;
  /** How many servers keep each stream that Waybill creates. @default the URL's `replicas`, otherwise 1 */
  readonly replicas?: number;
  /** How long to wait for a server to take the connection. @default 3000 */
  readonly connectTimeoutMs?: number;
  readonly clock?: Clock;
}

export interface Nats extends Sink, Source, Examination {
  readonly can: { readonly maxBytes: number; readonly run: 1; readonly assign: false };
  /** Creates a stream for each topic that no stream takes, and each consumer's place in it. What exists stays as it is. */
  provision(topics: readonly string[], consumers?: readonly string[]): Promise<void>;
}

const known = ["url", "provision", "replicas", "connectTimeoutMs", "clock"];
/** JetStream's default; each receiving sets its own. */
const bound = 1_000;

/** NATS JetStream: a topic is a subject, kept by a stream. */
export function nats(options: NatsOptions): Nats {
  checkOptions("nats", options, known);
  if (typeof options.url !== "string") throw new WaybillError("INVALID_OPTION", `nats: url must be a URL, not ${typeof options.url}`);
  const { provision = false, clock = systemClock } = options;
  const settings = settingsOf(options.url);
  const replicas = whole("replicas", options.replicas ?? settings.replicas ?? 1);
  const connectTimeoutMs = positive("connectTimeoutMs", options.connectTimeoutMs ?? 3_000);
  const link = createLink({ settings, connectTimeoutMs, clock });
  const closing = shared(new AbortController());
  const { flush, receive, oldest, lag } = createSource({ link, provision, replicas, clock, closing: closing.signal });

  return {
    name: "nats",
    can: {
      get maxBytes() {
        return link.maxBytes;
      },
      run: 1,
      assign: false,
    },
    ...createSink({ link, provision, replicas }),
    receive,
    oldest,
    lag,
    ...createExamination(link),
    async connect(signal) {
      await link.open(signal);
    },
    async provision(topics, consumers = []) {
      for (const topic of topics) checkSubject(topic, "INVALID_OPTION");
      await asking(link, closing.signal, async (api) => {
        for (const topic of topics) {
          const stream = await makeStream(api, topic, replicas);
          for (const consumer of consumers) await makeDurable(api, { consumer, topic, stream, bound });
        }
      });
    },
    async [Symbol.asyncDispose]() {
      closing.abort();
      await flush();
      await link.close();
    },
  };
}
