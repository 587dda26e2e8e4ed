export const partitionUnits = ["day", "week", "month"] as const;
export type PartitionUnit = (typeof partitionUnits)[number];
