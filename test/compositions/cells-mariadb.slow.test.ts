import { playCells } from "./cells.ts";

await playCells("mariadb", "some");
