import { brokerRows } from "./broker-rows.ts";
import { diskRows } from "./disk-rows.ts";
import { hostileMatrixRows } from "./hostile-rows.ts";
import { processRows } from "./process-rows.ts";
import type { Row } from "./row.ts";
import { scaleRows } from "./scale-rows.ts";
import { storeRows } from "./store-rows.ts";

/** The fault matrix, by number. */
export const rows: readonly Row[] = [...processRows, ...storeRows, ...brokerRows, ...diskRows, ...scaleRows, ...hostileMatrixRows].sort(
  (a, b) => a.number - b.number,
);
