export type Labels = Readonly<Record<string, string>>;
export type Series = readonly (readonly [labels: Labels, value: number])[];

export interface Gauge<Of> {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
  /** Null where the store does not know it. */
  readonly of: (what: Of) => Series | null;
}

export type Described = Pick<Gauge<never>, "name" | "help" | "labels">;

export const gauge = <Of>(
  name: string,
  help: string,
  of: (what: Of) => Series | number | "unknown" | undefined,
  ...labels: readonly string[]
): Gauge<Of> => ({
  name,
  help,
  labels,
  of(what) {
    const value = of(what);
    if (value === undefined || value === "unknown") return null;
    return typeof value === "number" ? [[{}, value]] : value;
  },
});

export function written(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${value.replace(/[\\"\n]/g, (c) => (c === "\n" ? "\\n" : `\\${c}`))}"`,
  );
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}
