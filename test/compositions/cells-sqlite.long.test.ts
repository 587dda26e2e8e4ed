import { playCells } from "./cells.ts";

await playCells("sqlite", "all");
