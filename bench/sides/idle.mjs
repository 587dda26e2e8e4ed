// A relay with nothing, or next to nothing, to do: how much of a core it and the database take, and how many statements it sends.
import { fork } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { openBroker } from "./brokers.mjs";
import { measured } from "./measure.mjs";
import { relayOf } from "./relay.mjs";
import { openStore } from "./stores.mjs";

export default async function idle(task) {
  const { rate = 0, relays = 1, listen = false, seconds } = task;
  let statements = 0;
  const pool = new pg.Pool({ connectionString: task.store, max: 5 });
  pool.on("connect", (client) => {
    const query = client.query.bind(client);
    client.query = (...given) => {
      statements += 1;
      return query(...given);
    };
  });
  const { store } = await openStore(task, { pool, url: undefined, listen });
  const relay = relays === 0 ? null : await relayOf(task, store, await openBroker(task), () => undefined);
  await relay?.start();
  if (rate > 0) fork(fileURLToPath(new URL("./load.mjs", import.meta.url)), [JSON.stringify(task)]);
  await sleep(3_000);
  statements = 0;
  const { ownMicros, databaseMicros, rssMb } = await measured(task, () => sleep(seconds * 1_000), { events: seconds });
  const percent = (micros) => micros / 10_000;
  return { ownPercent: percent(ownMicros), databasePercent: percent(databaseMicros), statements: statements / seconds, rssMb };
}
