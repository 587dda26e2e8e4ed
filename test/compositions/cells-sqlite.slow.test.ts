import { describe } from "vitest";
import { playCells } from "./cells.ts";
import { sqliteGround } from "./sqlite-ground.ts";
import { nameOf, sqliteWays } from "./ways.ts";

describe("compositions on SQLite", async () => {
  await playCells(
    "sqlite",
    sqliteWays.map((way) => ({ name: nameOf(way), prepare: () => sqliteGround(way) })),
    "some",
  );
});
