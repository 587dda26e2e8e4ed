import { defineEvents } from "waybill";
import { z } from "zod";

/** The events that the order service publishes. Both services import this catalogue. */
export const events = defineEvents({
  OrderPlaced: { aggregateType: "Order", schema: z.object({ total: z.number().int().positive() }) },
});
