import type { Pair } from "../faults/matrix/pairs.ts";

const processFaults = [
  ...(["kill writer", "kill relay", "kill subscriber", "freeze writer", "freeze relay", "freeze subscriber"] as const),
] as const;
const linkFaults = ["latency", "black hole", "cut", "reset"] as const;
const serverFaults = ["server killed", "server restarted", "server frozen"] as const;
/** A process is replaced, in order and under load, by one with other options. What each does is in switches.ts. */
export const switches = [
  "switch coordination",
  "switch relay batch",
  "switch relay count",
  "switch handler batch",
  "switch subscriber count",
] as const;

export type SwitchName = (typeof switches)[number];
export type ServerFault = `${(typeof linkFaults)[number] | (typeof serverFaults)[number]}: ${"store" | "broker"}`;
export type FaultName = (typeof processFaults)[number] | ServerFault | SwitchName;

const serverFaultsOf = (of: "store" | "broker"): readonly ServerFault[] =>
  [...linkFaults, ...serverFaults].map((name) => `${name}: ${of}` as const);

/** What can be broken and switched there. A file has neither a link nor a server. */
export const faultsOn = ({ store, broker }: Pair): readonly FaultName[] => [
  ...processFaults,
  ...(store === "sqlite" ? [] : serverFaultsOf("store")),
  ...(broker === "embedded" ? [] : serverFaultsOf("broker")),
  ...switches,
];

export const faultNames = faultsOn({ store: "postgres", broker: "kafka" });
