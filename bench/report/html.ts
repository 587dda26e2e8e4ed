import { cpu, holds, measures, shown, spreadPercent, totalCpu, type Finding, type Row, type Spread } from "./finding.ts";

interface Run {
  readonly title: string;
  readonly findings: readonly (Finding & { readonly scenario: string })[];
}

const escape = (text: string): string => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const [labelWidth, barWidth, valueWidth, lineHeight] = [230, 380, 150, 24];
const colours: Readonly<Record<string, string>> = { ownMicros: "#2563eb", databaseMicros: "#d97706", brokerMicros: "#059669" };

/** A self-contained page without scripts. */
export function html({ title, findings }: Run): string {
  const scenarios = [...new Set(findings.map(({ scenario }) => scenario))];
  const links = scenarios.map((name) => `<a href="#${name}">${name}</a>`).join(" · ");
  const sections = scenarios.map(
    (name) =>
      `<h2 id="${name}">${name}</h2>${findings
        .filter(({ scenario }) => scenario === name)
        .map(section)
        .join("")}`,
  );
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Waybill bench</title><style>${style}</style>
<h1>Waybill bench</h1><p>${escape(title)}</p><p>${links}</p>
<p>Bars show medians; the thin line is the spread over the rounds. CPU is per event: ${legend()}.</p>${sections.join("")}</html>\n`;
}

const style = `body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2937}
h2{margin-top:3rem;border-bottom:1px solid #d1d5db}h3{margin:2rem 0 .5rem;font-size:1rem}h4{margin:1rem 0 0;font-weight:normal;color:#6b7280}
svg{display:block;max-width:100%}text{font:13px system-ui,sans-serif;fill:#1f2937}.broken{color:#b91c1c;font-weight:bold}
ul{margin:.3rem 0;color:#6b7280}i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}`;

const legend = (): string =>
  cpu.map((name) => `<i style="background:${colours[name]}"></i>${escape(measures[name]!.title.replace(" CPU", ""))}`).join(", ");

function section(finding: Finding): string {
  const { question, rows = [], figures, ratio, bound, notes = [] } = finding;
  const verdict = bound === null ? "" : holds(finding) ? `, within ${bound.ratio}` : `, <span class="broken">beyond ${bound.ratio}</span>`;
  return [
    `<h3>${escape(question)}</h3>`,
    ...chartsOf(rows),
    figures.length === 0 ? "" : bars(figures.map(({ what, value, unit }) => ({ name: `${what} (${unit})`, value }))),
    ratio === null ? "" : `<p>Ratio ${ratio.toFixed(2)}${verdict}</p>`,
    notes.length === 0 ? "" : `<ul>${notes.map((note) => `<li>${escape(note)}</li>`).join("")}</ul>`,
  ].join("");
}

/** CPU in one chart, stacked; every other measure in one of its own. */
function chartsOf(rows: readonly Row[]): readonly string[] {
  const names = Object.keys(measures).filter((name) => rows.some((row) => name in row.measures));
  const single = names.filter((name) => !cpu.some((each) => each === name));
  const charts = single.map((name) => {
    const { title, unit } = measures[name]!;
    const values = rows.flatMap(({ name: side, measures: of }) =>
      of[name] === undefined ? [] : [{ name: side, value: of[name].median, spread: of[name] }],
    );
    return `<h4>${escape(`${title}, ${unit}`)}</h4>${bars(values)}`;
  });
  return names.length === single.length ? charts : [...charts.slice(0, 1), `<h4>CPU per event, µs</h4>${stacks(rows)}`, ...charts.slice(1)];
}

interface Bar {
  readonly name: string;
  readonly value: number;
  readonly spread?: Spread;
}

function bars(values: readonly Bar[]): string {
  const scale = scaleTo(values.map(({ value, spread }) => Math.max(value, spread?.most ?? 0)));
  return drawing(values, ({ value, spread }, y) => {
    const around = spread === undefined || spread.most === spread.least ? "" : whisker(spread, scale, y);
    const told = around === "" ? shown(value) : `${shown(value)} ±${spreadPercent(spread!)}%`;
    return { drawn: rect(0, scale(value), y, "#6b7280") + around, end: scale(Math.max(value, spread?.most ?? 0)), told };
  });
}

function stacks(rows: readonly Row[]): string {
  const scale = scaleTo(rows.map((row) => totalCpu(row) ?? 0));
  return drawing(rows, (row, y) => {
    let from = 0;
    const drawn = cpu.map((name) => {
      const width = scale(Math.max(0, row.measures[name]?.median ?? 0));
      const part = rect(from, width, y, colours[name]!);
      from += width;
      return part;
    });
    return { drawn: drawn.join(""), end: from, told: shown(totalCpu(row) ?? 0) };
  });
}

const scaleTo = (values: readonly number[]): ((value: number) => number) => {
  const most = Math.max(...values.filter(Number.isFinite), 0);
  return (value) => (most === 0 || !Number.isFinite(value) ? 0 : (Math.max(0, value) / most) * barWidth);
};

const rect = (from: number, width: number, y: number, fill: string): string =>
  `<rect x="${(labelWidth + from).toFixed(1)}" y="${y + 4}" width="${width.toFixed(1)}" height="${lineHeight - 8}" fill="${fill}"/>`;

function whisker({ least, most }: Spread, scale: (value: number) => number, y: number): string {
  const [x1, x2, at] = [labelWidth + scale(least), labelWidth + scale(most), y + lineHeight / 2];
  return `<line x1="${x1.toFixed(1)}" x2="${x2.toFixed(1)}" y1="${at}" y2="${at}" stroke="#111827" stroke-width="2"/>`;
}

function drawing<Of extends { readonly name: string }>(
  all: readonly Of[],
  draw: (one: Of, y: number) => { readonly drawn: string; readonly end: number; readonly told: string },
): string {
  const lines = all.map((one, nth) => {
    const y = nth * lineHeight;
    const { drawn, end, told } = draw(one, y);
    const name = one.name.length > 38 ? `${one.name.slice(0, 37)}…` : one.name;
    return `<text x="0" y="${y + 16}">${escape(name)}<title>${escape(one.name)}</title></text>${drawn}<text x="${(labelWidth + end + 6).toFixed(1)}" y="${y + 16}">${escape(told)}</text>`;
  });
  const width = labelWidth + barWidth + valueWidth;
  return `<svg viewBox="0 0 ${width} ${all.length * lineHeight}" width="${width}" role="img">${lines.join("")}</svg>`;
}
