import { visible } from "../../core/text.ts";
import { leftWords, type RunReport, type ToldVerdict } from "./report.ts";
import type { Timeline } from "./timeline.ts";

const escape = (text: string): string =>
  visible(text).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]!);

const style = `
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5d6b7a; --line: #d5dce3; --good: #1a7f4b; --bad: #b3261e; --doubt: #9a6700; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --soft: #9aa7b4; --line: #37424d; --good: #4cc38a; --bad: #ff7b72; --doubt: #d29922; --paper: #14191f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.holds { color: var(--good); } .broken { color: var(--bad); font-weight: 600; } .unknown { color: var(--doubt); font-weight: 600; }
.soft, small { color: var(--soft); } pre { overflow: auto; font-size: .8rem; } svg { width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
`;

/** Every page's title begins with this, so that an older report is recognised. */
export const pageTitle = "<title>waybill verify: ";

/** One file that needs nothing else. */
export function page(report: RunReport): string {
  const title = report.held ? "Every promise held" : "Not every promise held";
  const about = [
    ["store", report.store],
    ["broker", report.broker],
    ["run", `${report.run}, seed ${report.seed}, ${report.minutes} min, ${report.startedAt}`],
    [
      "events",
      `${report.counts.events} committed, ${report.counts.published} in the broker, ${report.counts.copies} copies, ${report.counts.effects} effects`,
    ],
  ];
  const { left } = report;
  if (left !== null) about.push(["left", leftWords(left).join("; ")]);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8">${pageTitle}${title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"><style>${style}</style></head><body>
<h1 class="${report.held ? "holds" : "broken"}">${title}</h1>
<table>${about.map(([name, value]) => `<tr><th>${escape(name!)}</th><td>${escape(value!)}</td></tr>`).join("")}</table>
<h2>Verdicts</h2>
<table><tr><th>invariant</th><th>verdict</th><th>what it says</th></tr>${report.verdicts.map(verdictRow).join("")}</table>
<h2>Timeline</h2>
${drawing(report.timeline)}
<h2>Faults</h2>
<table>${Object.entries(report.faults)
    .map(([name, times]) => `<tr><td>${escape(name)}</td><td>${times}</td></tr>`)
    .join("")}</table>
<h2>How it was made</h2>
<ul>${report.notes.map((note) => `<li>${escape(note)}</li>`).join("")}</ul>
</body></html>
`;
}

function verdictRow({ invariant, promise, verdict, why, story }: ToldVerdict): string {
  const events = story.map((entry) => escape(JSON.stringify(entry))).join("\n");
  const details = story.length === 0 ? "" : `<details><summary>what was recorded of it</summary><pre>${events}</pre></details>`;
  return `<tr><td>${escape(invariant)}</td><td class="${verdict}">${verdict}</td><td>${escape(promise)}${why === "" ? "" : `<br><small>${escape(why)}</small>`}${details}</td></tr>`;
}

const [width, top, height, lane] = [960, 16, 140, 16];
const colours = { added: "#6e7b8a", published: "#2f81f7", applied: "#2da44e" } as const;

/** Three lines of events per second, and below them each fault for as long as it lasted. */
function drawing({ seconds, faults, throughput }: Timeline): string {
  const x = (second: number): number => Math.round((second / Math.max(1, seconds)) * (width - 40)) + 30;
  const most = Math.max(1, ...Object.values(throughput).flat());
  const y = (value: number): number => Math.round(top + height - (value / most) * height);
  const lines = Object.entries(throughput).map(([name, values]) => {
    const points = values.map((value, second) => `${x(second)},${y(value)}`).join(" ");
    return `<polyline fill="none" stroke="${colours[name as keyof typeof colours]}" stroke-width="1.5" points="${points}"/>`;
  });
  const names = [...new Set(faults.map(({ fault, target }) => `${fault}, ${target}`))];
  const bars = faults.map(({ from, until, fault, target }) => {
    const row = names.indexOf(`${fault}, ${target}`);
    const y1 = top + height + 24 + row * lane;
    return `<rect x="${x(from)}" y="${y1}" width="${Math.max(3, x(until) - x(from))}" height="${lane - 5}" fill="#cf222e"><title>${escape(`${fault}, ${target}: ${from.toFixed(1)} s to ${until.toFixed(1)} s`)}</title></rect>`;
  });
  const labels = names.map(
    (name, row) => `<text x="${width - 8}" y="${top + height + 33 + row * lane}" text-anchor="end">${escape(name)}</text>`,
  );
  const legend = Object.entries(colours).map(
    ([name, colour], i) => `<text x="${40 + i * 90}" y="12" style="fill:${colour}">${name}</text>`,
  );
  const all = top + height + 34 + names.length * lane;
  return `<svg viewBox="0 0 ${width} ${all}" role="img" aria-label="events per second, and the faults below">
<line x1="30" x2="${width - 10}" y1="${top + height}" y2="${top + height}" stroke="#8884"/>
<text x="0" y="${top + 10}">${most}/s</text><text x="30" y="${top + height + 14}">0 s</text><text x="${width - 10}" y="${top + height + 14}" text-anchor="end">${seconds} s</text>
${legend.join("")}${lines.join("")}${bars.join("")}${labels.join("")}
</svg>`;
}
