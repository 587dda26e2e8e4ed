/** Not a topic: the seat of the process that forgets old marks. */
export const forgettingSeat = "waybill:forget";
