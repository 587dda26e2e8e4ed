import { playCells } from "./cells.ts";

await playCells("mysql", "some");
