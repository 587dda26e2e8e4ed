import { playCells } from "./cells.ts";

await playCells("postgres", "all");
