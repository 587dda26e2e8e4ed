import { defineEvents } from "waybill";
import { z } from "zod";

/** What the order service tells others. Both services import it. */
export const events = defineEvents({
  OrderPlaced: { aggregateType: "Order", schema: z.object({ total: z.number().int().positive() }) },
});
