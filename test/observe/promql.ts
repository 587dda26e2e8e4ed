/** As much of PromQL as rules about a single moment need: selectors, aggregations, absent, comparisons with numbers, and, or, unless. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The samples of a /metrics page. */
export function samplesOf(page: string): readonly Sample[] {
  return page.split("\n").flatMap((line) => {
    const [, name, inside = "", value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined || line.startsWith("#")) return [];
    return [{ name, labels: labelsIn(inside), value: Number(value) }];
  });
}

const labelsIn = (inside: string): Record<string, string> =>
  Object.fromEntries(
    [...inside.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, name, value]) => [name!, JSON.parse(`"${value}"`) as string]),
  );

type Vector = readonly Omit<Sample, "name">[];

const tokens = /\s*(?:(\d+(?:\.\d+)?(?:e\d+)?)|(\w+)|(\{[^}]*\})|(==|!=|>=|<=|[()<>,]))/y;

/** Throws at anything that it does not know: a rule is never judged by half. */
export function evaluate(expr: string, samples: readonly Sample[]): Vector {
  const words: string[] = [];
  for (tokens.lastIndex = 0; tokens.lastIndex < expr.trimEnd().length;) {
    const at = tokens.lastIndex;
    const [, ...found] = tokens.exec(expr) ?? [];
    const word = found.find((each) => each !== undefined);
    if (word === undefined) throw new Error(`unknown at ${at} of ${expr}`);
    words.push(word);
  }
  let at = 0;
  const next = (): string => words[at++] ?? "";
  const take = (word: string): void => {
    if (next() !== word) throw new Error(`${word} is missing in ${expr}`);
  };
  const list = (): readonly string[] => {
    const names: string[] = [];
    take("(");
    while (words[at] !== ")") if (next() !== ",") names.push(words[at - 1]!);
    take(")");
    return names;
  };
  const only = (labels: Sample["labels"], names: readonly string[]): Record<string, string> =>
    Object.fromEntries(names.flatMap((name) => (labels[name] === undefined ? [] : [[name, labels[name]]])));

  const primary = (): Vector => {
    const word = next();
    if (word === "(") {
      const inner = either();
      take(")");
      return inner;
    }
    if (word === "absent") {
      take("(");
      const inner = either();
      take(")");
      return inner.length === 0 ? [{ labels: {}, value: 1 }] : [];
    }
    const fold = { max: Math.max, min: Math.min, sum: (...all: number[]) => all.reduce((a, b) => a + b, 0) }[word];
    if (fold !== undefined) {
      const by = words[at] === "by" ? (next(), list()) : [];
      take("(");
      const inner = either();
      take(")");
      const groups = new Map<string, { labels: Record<string, string>; values: number[] }>();
      for (const { labels, value } of inner) {
        const kept = only(labels, by);
        const key = JSON.stringify(by.map((name) => kept[name]));
        const group = groups.get(key) ?? { labels: kept, values: [] };
        group.values.push(value);
        groups.set(key, group);
      }
      return [...groups.values()].map(({ labels, values }) => ({ labels, value: fold(...values) }));
    }
    if (!word.startsWith("waybill_") || words[at] === "(") throw new Error(`${word} is not known here: ${expr}`);
    const wanted = words[at]?.startsWith("{") === true ? labelsIn(next()) : {};
    return samples.filter(({ name, labels }) => name === word && Object.entries(wanted).every(([label, value]) => labels[label] === value));
  };
  const compares: Readonly<Record<string, (a: number, b: number) => boolean>> = {
    "==": (a, b) => a === b,
    "!=": (a, b) => a !== b,
    ">": (a, b) => a > b,
    "<": (a, b) => a < b,
    ">=": (a, b) => a >= b,
    "<=": (a, b) => a <= b,
  };
  const compared = (): Vector => {
    const left = primary();
    const holds = compares[words[at] ?? ""];
    if (holds === undefined) return left;
    next();
    const limit = Number(next());
    if (Number.isNaN(limit)) throw new Error(`only numbers are compared with: ${expr}`);
    return left.filter(({ value }) => holds(value, limit));
  };
  const both = (): Vector => {
    let left = compared();
    while (words[at] === "and" || words[at] === "unless") {
      const wanted = next() === "and";
      const on = words[at] === "on" ? (next(), list()) : null;
      const key = ({ labels }: { readonly labels: Sample["labels"] }): string =>
        JSON.stringify(on === null ? Object.entries(labels).sort() : on.map((name) => labels[name] ?? ""));
      const right = new Set(compared().map(key));
      left = left.filter((each) => right.has(key(each)) === wanted);
    }
    return left;
  };
  const either = (): Vector => {
    let left = both();
    while (words[at] === "or") {
      next();
      const had = new Set(left.map(({ labels }) => JSON.stringify(Object.entries(labels).sort())));
      left = [...left, ...both().filter(({ labels }) => !had.has(JSON.stringify(Object.entries(labels).sort())))];
    }
    return left;
  };
  const found = either();
  if (at < words.length) throw new Error(`${words[at]!} is not known here: ${expr}`);
  return found;
}
