import { afterAll, beforeAll, test } from "vitest";
import { describeWith, type ServerName } from "../servers/available.ts";
import { readKept } from "./kept.ts";
import type { Target } from "./target.ts";
import { brokerNames, openBroker, openStore, storeNames } from "./targets.ts";

const servers: readonly (readonly [ServerName, () => Promise<Target>])[] = [
  ...storeNames.flatMap((name) => (name === "sqlite" ? [] : [[name, () => openStore(name)] as const])),
  ...brokerNames.flatMap((name) => (name === "embedded" ? [] : [[name, () => openBroker(name)] as const])),
];

for (const [name, open] of servers) {
  await describeWith(name, `hostile input to ${name}`, () => {
    let target: Target;
    beforeAll(async () => {
      target = await open();
    });
    afterAll(() => target[Symbol.asyncDispose]());

    const seeds = [...readKept(name).map(({ seed }) => seed), 1, 2, 3];
    test.each(seeds)("ends visible, and good input flows beside it: seed %i", async (seed) => {
      await target.round(seed);
    });
  });
}
