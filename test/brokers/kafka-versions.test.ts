import { expect, test } from "vitest";
import { checkVersions, type Wanted } from "../../src/brokers/kafka/versions.ts";

const wanted = { produce: { key: 0, version: 9 }, fetch: { key: 1, version: 13 }, deleteGroups: { key: 42, version: 2 } } as Wanted;
type Api = readonly [apiKey: number, minVersion: number, maxVersion: number];
const check = (...taken: readonly Api[]): void => {
  const apiKeys = taken.map(([apiKey, minVersion, maxVersion]) => ({ apiKey, minVersion, maxVersion }));
  checkVersions("kafka://one:9092", wanted, { apiKeys });
};

test("a broker that takes every request at its version is fit, also one that has just these", () => {
  expect(() => check([0, 0, 12], [1, 4, 17], [42, 0, 2])).not.toThrow();
  expect(() => check([0, 9, 9], [1, 13, 13], [42, 2, 2])).not.toThrow();
});

test("one that is too old, too new or has no such request is refused before anything is sent, by name", () => {
  const unfit = (why: string): unknown =>
    expect.objectContaining({ code: "DRIVER_UNFIT", message: expect.stringContaining(why) as unknown });
  for (const produce of [
    [0, 0, 8],
    [0, 10, 12],
  ] as const)
    expect(() => check(produce, [1, 4, 17])).toThrow(unfit("kafka://one:9092 does not take version 9 of the request produce"));
  expect(() => check([0, 0, 12])).toThrow(unfit("version 13 of the request fetch"));
});

test("one that cannot remove groups can be published to and read", () => {
  expect(() => check([0, 0, 12], [1, 4, 17])).not.toThrow();
  expect(() => check([0, 0, 12], [1, 4, 17], [42, 0, 1])).not.toThrow();
});
