export interface Figure {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
}

export interface Spread {
  readonly least: number;
  readonly median: number;
  readonly most: number;
}

/** The measures of one side of a comparison, by name, each with its spread over the rounds. */
export interface Row {
  readonly name: string;
  readonly rounds: number;
  readonly measures: Readonly<Record<string, Spread>>;
}

/** A question, its answer as a ratio to a baseline of the same run, and the bound that must hold, or null if the ratio is only shown. */
export interface Finding {
  readonly question: string;
  readonly figures: readonly Figure[];
  /** Null where there is nothing to compare with. */
  readonly ratio: number | null;
  readonly bound: { readonly at: "least" | "most"; readonly ratio: number } | null;
  readonly notes?: readonly string[];
  readonly rows?: readonly Row[];
  /** The row that the others are compared with. */
  readonly base?: string;
}

export function holds({ ratio, bound }: Finding): boolean {
  if (bound === null || ratio === null) return bound === null;
  return bound.at === "least" ? ratio >= bound.ratio : ratio <= bound.ratio;
}

interface Measure {
  readonly title: string;
  readonly unit: string;
}

/** In the order of the columns. */
export const measures: Readonly<Record<string, Measure>> = {
  perSecond: { title: "rate", unit: "/s" },
  ownMicros: { title: "our CPU", unit: "µs" },
  databaseMicros: { title: "database CPU", unit: "µs" },
  brokerMicros: { title: "broker CPU", unit: "µs" },
  walBytes: { title: "WAL", unit: "B" },
  rssMb: { title: "RSS", unit: "MB" },
  ackP50: { title: "to ack p50", unit: "ms" },
  ackP99: { title: "to ack p99", unit: "ms" },
  coldP50: { title: "other lanes p50", unit: "ms" },
  coldP99: { title: "other lanes p99", unit: "ms" },
  mateP50: { title: "its lane p50", unit: "ms" },
  mateP99: { title: "its lane p99", unit: "ms" },
  effectP50: { title: "to effect p50", unit: "ms" },
  effectP99: { title: "to effect p99", unit: "ms" },
  arrivalP50: { title: "to consumer p50", unit: "ms" },
  arrivalP99: { title: "to consumer p99", unit: "ms" },
  ackUnseen: { title: "never acked", unit: "events" },
  coldUnseen: { title: "of other lanes", unit: "events" },
  mateUnseen: { title: "of its lane", unit: "events" },
  effectUnseen: { title: "never applied", unit: "events" },
  arrivalUnseen: { title: "never came", unit: "events" },
  ownPercent: { title: "our CPU", unit: "% of a core" },
  databasePercent: { title: "database CPU", unit: "% of a core" },
  statements: { title: "statements", unit: "/s" },
};

export const cpu = ["ownMicros", "databaseMicros", "brokerMicros"] as const;

/** CPU of all processes for one event, or null if the side has no CPU measure. */
export function totalCpu(row: Row): number | null {
  const parts = cpu.flatMap((name) => row.measures[name]?.median ?? []);
  return parts.length === 0 ? null : parts.reduce((sum, each) => sum + each, 0);
}

const round = (value: number): number => (Math.abs(value) >= 100 ? Math.round(value) : Math.round(value * 100) / 100);
export const shown = (value: number): string => round(value).toLocaleString("en");

/** Half the range from the least to the most, in percent of the median. */
export function spreadPercent({ least, median, most }: Spread): number {
  return median === 0 ? 0 : Math.round(((most - least) / 2 / Math.abs(median)) * 100);
}
