import { playCells } from "./cells.ts";

await playCells("mariadb", "all");
