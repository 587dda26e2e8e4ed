import type { BrokerAdapter } from "../../contracts/adapter.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { never } from "../../core/time.ts";
import { guardedBy } from "../kit/describe.ts";
import { rules } from "./examine.ts";
import { redis } from "./index.ts";
import { createLink } from "./link.ts";
import { starter } from "./starter.ts";
import { placeOf } from "./url.ts";

export const redisAdapter: BrokerAdapter = {
  name: "Redis Streams",
  schemes: ["redis", "rediss"],
  example: "redis://user:password@host:6379/0",
  rules,
  starter,
  server: { port: 6379, ...guardedBy("rediss") },
  open({ text }) {
    const broker = redis({ url: text });
    return {
      sink: broker,
      provision: (topics, consumers) => broker.provision(topics, consumers),
      async purge(before, topics) {
        if (topics.length === 0) throw new WaybillError("USAGE", "--topics A,B is needed: Redis does not tell streams from other keys");
        return broker.purge(before, topics);
      },
    };
  },
  openRun({ text }, _, { timeoutMs }) {
    const broker = redis({ url: text, timeoutMs });
    return {
      broker,
      provision: (topics, consumers) => broker.provision(topics, consumers),
      async remove(topics) {
        const link = createLink({ place: placeOf(text), clock, timeoutMs: 5_000 });
        const removing = link.open(never).then((connection) => link.ask(connection, [["DEL", ...topics]]));
        await removing.finally(() => link.close());
      },
    };
  },
};
