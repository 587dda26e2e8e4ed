import type { BrokerAdapter } from "../../contracts/adapter.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { guardedBy, inStages, purgesItself } from "../kit/describe.ts";
import { ApiError, codes, createApi, explain, type Api } from "./api.ts";
import { nats } from "./index.ts";
import { createLink } from "./link.ts";
import { streamName } from "./names.ts";
import { settingsOf } from "./url.ts";

const never = new AbortController().signal;

export const natsAdapter: BrokerAdapter = {
  name: "NATS JetStream",
  schemes: ["nats", "tls"],
  example: "nats://user:password@host:4222,host2:4222",
  server: { port: 4222, token: true, ...guardedBy("tls") },
  open({ text }) {
    const broker = nats({ url: text });
    return {
      sink: broker,
      provision: (topics, consumers) => broker.provision(topics, consumers),
      purge: purgesItself("a JetStream stream deletes by its own limits: set max_age on the stream"),
    };
  },
  openRun({ text }, _, { timeoutMs }) {
    const broker = nats({ url: text, connectTimeoutMs: timeoutMs });
    return {
      broker,
      vacant: (topics) =>
        asking(text, async (api, place) => {
          for (const topic of topics) await refuseTaken(api, place, topic);
        }),
      provision: (topics, consumers) => broker.provision(topics, consumers),
      remove: (topics) => asking(text, (api) => inStages([topics.map((topic) => () => removeStream(api, topic))])),
    };
  },
};

async function asking(url: string, work: (api: Api, place: string) => Promise<void>): Promise<void> {
  const link = createLink({ settings: settingsOf(url), connectTimeoutMs: 5_000, clock });
  try {
    await work(createApi(await link.get(never), link.place, never), link.place);
  } catch (error) {
    throw explain(error, link.place);
  } finally {
    await link.close();
  }
}

/** Whichever stream takes a subject keeps it: a wildcard of the user's would get the run's events and consumers. */
async function refuseTaken(api: Api, place: string, topic: string): Promise<void> {
  const { streams } = await api.ask<{ readonly streams: readonly string[] | null }>("STREAM.NAMES", { subject: topic });
  const [name] = streams ?? [];
  if (name === undefined) return;
  const why = `stream ${name} of ${place} takes the subject ${JSON.stringify(topic)}, and the run's events would be among its own`;
  throw new WaybillError(
    "UNSUPPORTED",
    `${why}: give waybill verify an account or a server of its own, or the stream subjects that do not take this one`,
  );
}

async function removeStream(api: Api, topic: string): Promise<void> {
  const name = streamName(topic);
  try {
    await api.ask(`STREAM.DELETE.${name}`);
  } catch (error) {
    if (error instanceof ApiError && error.code === codes.streamNotFound) return;
    throw new Error(`stream ${name}: ${asError(error).message}`, { cause: error });
  }
}
