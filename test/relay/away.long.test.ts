import { test } from "vitest";
import { awayWith } from "./crowd-scene.ts";

test("a broker that is away with 100,000 topics in the outbox spends no attempt and kills no event, and all arrive when it is back", () =>
  awayWith(100_000));
