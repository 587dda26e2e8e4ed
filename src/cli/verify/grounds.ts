import { storeUrl } from "../adapters.ts";
import { pathOf } from "../files.ts";
import { checkedUrl } from "../servers.ts";
import type { Ground } from "./ground.ts";
import { mysqlGround, postgresGround } from "./server-grounds.ts";
import { sqliteGround } from "./sqlite-ground.ts";
import type { Place } from "./task.ts";

/** The ground of a run in the database that the URL names; its tables need not be there yet. */
export async function openGround({ store: text, run }: Pick<Place, "store" | "run">): Promise<Ground> {
  const url = storeUrl(text);
  switch (url.scheme) {
    case "sqlite":
      return sqliteGround(pathOf(url), run);
    case "postgres":
    case "postgresql":
      return postgresGround(checkedUrl(url), run);
    default:
      return mysqlGround(checkedUrl(url), run);
  }
}
