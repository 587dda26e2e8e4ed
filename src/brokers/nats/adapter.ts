import type { BrokerAdapter } from "../../contracts/adapter.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { never } from "../../core/time.ts";
import { guardedBy, inStages, purgesItself } from "../kit/describe.ts";
import { asking, codes, isApiError, takerOf, type Api } from "./api.ts";
import { rules } from "./examine.ts";
import { nats } from "./index.ts";
import { createLink } from "./link.ts";
import { streamName } from "./names.ts";
import { starter } from "./starter.ts";
import { settingsOf } from "./url.ts";

export const natsAdapter: BrokerAdapter = {
  name: "NATS JetStream",
  schemes: ["nats", "tls"],
  example: "nats://user:password@host:4222,host2:4222",
  rules,
  starter,
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
        once(text, async (api) => {
          for (const topic of topics) await refuseTaken(api, topic);
        }),
      provision: (topics, consumers) => broker.provision(topics, consumers),
      remove: (topics) => once(text, (api) => inStages([topics.map((topic) => () => removeStream(api, topic))])),
    };
  },
};

/** On a connection of its own. */
async function once(url: string, work: (api: Api) => Promise<void>): Promise<void> {
  const link = createLink({ settings: settingsOf(url), connectTimeoutMs: 5_000, clock });
  await asking(link, never, work).finally(() => link.close());
}

/** A subject stays with the stream that takes it: a user's stream with a wildcard would get the run's events and consumers. */
async function refuseTaken(api: Api, topic: string): Promise<void> {
  const name = await takerOf(api, topic);
  if (name === null) return;
  const why = `stream ${name} of ${api.place} takes the subject ${JSON.stringify(topic)}, and the run's events would be among its own`;
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
    if (isApiError(error, codes.streamNotFound)) return;
    throw new Error(`stream ${name}: ${asError(error).message}`, { cause: error });
  }
}
