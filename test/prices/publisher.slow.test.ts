import { afterAll, beforeAll, test } from "vitest";
import type { BrokerName } from "../fuzz/messages.ts";
import { openPlaces, type Place as Broker } from "../fuzz/publishers.ts";
import { describeWith } from "../servers/available.ts";
import { expectMessagesBounded } from "./bounds.ts";
import { messages } from "./messages.ts";
import { type Database, postgresDatabase } from "./places.ts";
import { priceOfMessages } from "./publisher-scene.ts";
import { told } from "./suite.ts";

const share = 10;

for (const name of ["redis", "nats", "kafka", "rabbitmq"] as const satisfies readonly BrokerName[])
  await describeWith([name, "postgres"], `what a publisher's messages cost a subscriber and its database, on ${name}`, () => {
    let [database, broker]: [Database, Broker] = [null!, null!];
    beforeAll(async () => {
      [database, broker] = await Promise.all([postgresDatabase(), openPlaces[name]()]);
    });
    afterAll(async () => {
      await broker[Symbol.asyncDispose]();
      await database[Symbol.asyncDispose]();
    });
    for (const kind of messages) {
      const some = { ...kind, count: kind.count / share };
      test(`${some.count} ${kind.name}`, async () => {
        const price = await priceOfMessages(database, broker, some);
        console.log(`${name}, ${some.count} ${kind.name}: ${told(price)}`);
        expectMessagesBounded(some, price);
      });
    }
  });
