import { holds, measures, shown, spreadPercent, totalCpu, type Finding, type Row } from "./finding.ts";

export function text(finding: Finding): string {
  const { question, figures, rows = [], notes = [] } = finding;
  return [
    question,
    ...(rows.length === 0 ? [] : table(rows, finding.base)),
    ...figures.map(({ what, value, unit }) => `  ${what.padEnd(48)} ${shown(value).padStart(12)} ${unit}`),
    ...ratioLine(finding),
    ...notes.map((note) => `  ${note}`),
  ].join("\n");
}

function ratioLine(finding: Finding): readonly string[] {
  const { ratio, bound } = finding;
  if (ratio === null) return [];
  const verdict = bound === null ? "shown" : `${holds(finding) ? "holds" : "BROKEN"}: at ${bound.at} ${bound.ratio}`;
  return [`  ${"ratio".padEnd(48)} ${ratio.toFixed(2).padStart(12)} (${verdict})`];
}

/** One line per side: medians, each followed by its spread if there were several rounds. */
function table(rows: readonly Row[], base: string | undefined): readonly string[] {
  const columns = Object.keys(measures).filter((name) => rows.some((row) => name in row.measures));
  const against = rows.find(({ name }) => name === base);
  const head = ["", ...columns.map((name) => measures[name]!.title), ...(against === undefined ? [] : ["× rate", "× CPU"])];
  const lines = rows.map((row) => [
    row.name,
    ...columns.map((name) => cell(row, name)),
    ...(against === undefined ? [] : [times(row, against, rateOf), times(row, against, totalCpu)]),
  ]);
  const widths = head.map((title, column) => Math.max(title.length, ...lines.map((line) => line[column]!.length)));
  const line = (cells: readonly string[]): string =>
    `  ${cells.map((each, column) => (column === 0 ? each.padEnd(widths[0]!) : each.padStart(widths[column]!))).join("  ")}`.trimEnd();
  const note = against === undefined ? [] : [`  × compares with “${against.name}”`];
  return [line(head), ...lines.map(line), ...note];
}

const rateOf = (row: Row): number | null => row.measures["perSecond"]?.median ?? null;

function times(row: Row, against: Row, of: (row: Row) => number | null): string {
  const [one, other] = [of(row), of(against)];
  return one === null || other === null || other === 0 ? "–" : (one / other).toFixed(2);
}

function cell({ measures: of, rounds }: Row, name: string): string {
  const spread = of[name];
  if (spread === undefined) return "–";
  const around = rounds > 1 ? ` ±${spreadPercent(spread)}%` : "";
  return `${shown(spread.median)} ${measures[name]!.unit.replace("% of a core", "%")}${around}`;
}
