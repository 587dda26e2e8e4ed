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

/** What a store cannot be combined with. One row for each reason. */
const cannots: readonly { readonly why: string; readonly is: (cell: Pick<Cell, "store" | "published" | "hints">) => boolean }[] = [
  {
    why: "SQLite keeps published rows, without partitions",
    is: ({ store, published }) => store === "sqlite" && published !== "kept",
  },
  { why: "only PostgreSQL has LISTEN", is: ({ store, hints }) => store !== "postgres" && hints === "listens" },
];

const plain = Object.fromEntries(Object.entries(features).map(([name, levels]) => [name, levels[0]])) as unknown as Features;

const whyNot = (store: Cell["store"], name: string, level: string): string | null =>
  cannots.find(({ is }) => is({ ...plain, store, [name]: level }))?.why ?? null;

/** What this store's cells are dealt of. */
export const levelsOf = (store: Cell["store"]): Readonly<Record<string, readonly string[]>> =>
  Object.fromEntries(
    Object.entries(features).map(([name, levels]) => [name, levels.filter((level) => whyNot(store, name, level) === null)]),
  );

/** What this store's cells lack, each with its reason. */
export const lacks = (store: Cell["store"]): readonly string[] =>
  Object.entries(features).flatMap(([name, levels]) =>
    levels.flatMap((level) => {
      const why = whyNot(store, name, level);
      return why === null ? [] : [`${name}: ${level} (${why})`];
    }),
  );

/** In few words, without what is plain. */
export function tell(cell: Cell): string {
  const odd = Object.entries(features).flatMap(([name, levels]) => {
    const level = cell[name as keyof Features];
    return name === "mode" || name === "broker" || level === levels[0] ? [] : [`${name}: ${level}`];
  });
  return [`${cell.deed}, ${cell.mode}, ${cell.way}, ${cell.broker}`, ...odd].join(", ");
}

/** Where the server refuses to end a batch's transaction, a handler of batches is given its events one at a time after that. */
const isGuarded = ({ store, way }: Pick<Cell, "store" | "way">): boolean =>
  store === "postgres" || (store !== "sqlite" && way.startsWith("{"));

/** When a handler of batches that ends its transaction leaves all events of its call unfinished. One row for each. */
const limits: readonly { readonly why: string; readonly is: (cell: Cell) => boolean }[] = [
  {
    why: "a handler of batches that commits leaves all events of its call unfinished",
    is: (cell) => ["commits", "runs DDL"].includes(cell.deed) && !isGuarded(cell),
  },
  {
    why: "a handler of batches that goes on behind its own ROLLBACK in a library's transaction leaves all events of its call unfinished",
    is: ({ store, way, deed }) => deed === "rolls back" && store !== "sqlite" && !way.startsWith("{"),
  },
];

export const isLimited = (cell: Cell): boolean => cell.mode === "batchHandlers" && limits.some(({ is }) => is(cell));

/** The documented limits that these cells are judged with. */
export const limitsOf = (cells: readonly Cell[]): readonly string[] =>
  limits.flatMap(({ why, is }) => {
    const count = cells.filter((cell) => isLimited(cell) && is(cell)).length;
    return count === 0 ? [] : [`${why} (${count} cells)`];
  });
