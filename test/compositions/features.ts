/** What a cell is made of besides its store. The first level of each is the plainest. */
export const features = {
  mode: ["one by one", "batch", "batchHandlers"],
  broker: ["memory", "embedded", "kafka", "rabbitmq", "nats", "redis"],
  /** How many relays and subscribers of one consumer run, and how relays share the lanes. */
  relays: ["one", "two partitioned", "two competing", "two with a leader"],
  subscribers: ["one", "two"],
  /** What becomes of a published row. */
  published: ["kept", "deleted", "kept in partitions", "deleted in partitions"],
  /** How a relay hears of new events; it polls each second only where there are hints. */
  hints: ["polls", "hints", "listens"],
  /** Events that are refused for good, and what becomes of those behind them. */
  refused: ["none", "blocks", "skips"],
  delayed: ["none", "some"],
  keys: ["none", "twice"],
  /** Letters are redriven once their cause is gone. */
  letters: ["stay", "redriven"],
} as const;

export type Features = { readonly [Name in keyof typeof features]: (typeof features)[Name][number] };

export interface Cell extends Features {
  readonly store: "postgres" | "mariadb" | "mysql" | "sqlite";
  /** How handlers and services reach the database: the name of a way. */
  readonly way: string;
  readonly deed: string;
}

/** Why this cell cannot run; null when it can. */
export function cannot(cell: Cell): string | null {
  if (cell.store === "sqlite" && cell.published !== "kept") return "SQLite keeps published rows, without partitions";
  if (cell.hints === "listens" && cell.store !== "postgres") return "only PostgreSQL has LISTEN";
  return null;
}

/** In few words, without what is plain. */
export function tell(cell: Cell): string {
  const odd = Object.entries(features).flatMap(([name, levels]) => {
    const level = cell[name as keyof Features];
    return name === "mode" || name === "broker" || level === levels[0] ? [] : [`${name}: ${level}`];
  });
  return [`${cell.deed}, ${cell.mode}, ${cell.way}, ${cell.broker}`, ...odd].join(", ");
}
