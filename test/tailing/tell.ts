import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Came } from "./broker.ts";
import type { Said } from "./crew.ts";
import type { Ground } from "./ground.ts";
import type { Committed, Finding, Trouble } from "./judge.ts";
import type { Written } from "./load.ts";
import type { Happening } from "./troubles.ts";

/** All that a segment left behind, for whoever looks for the cause. */
export interface History {
  readonly arrivals: readonly Came[];
  readonly committed: readonly Committed[];
  readonly troubles: readonly Trouble[];
  readonly timeline: readonly Happening[];
  readonly said: readonly Said[];
  readonly written: ReadonlyMap<string, Written>;
  readonly takenBack: ReadonlySet<string>;
}

const lines = (values: Iterable<unknown>): string => [...values].map((value) => `${JSON.stringify(value)}\n`).join("");

export function writeHistory(folder: string, { findings, ...history }: History & { readonly findings: readonly Finding[] }): void {
  mkdirSync(folder, { recursive: true });
  const { arrivals, committed, troubles, timeline, said, written, takenBack } = history;
  const files = {
    findings,
    ...{ arrivals, committed, troubles, timeline, said },
    written: [...written].map(([id, how]) => ({ id, ...how, takenBack: takenBack.has(id) })),
  };
  for (const [name, values] of Object.entries(files)) writeFileSync(join(folder, `${name}.jsonl`), lines(values));
}

const most = 5;
const aroundMs = 4_000;
const seconds = (at: number): string => `${(at / 1_000).toFixed(3)} s`;

/** The first bad events, with all that is known about each. */
export async function storyOf(findings: readonly Finding[], history: History, ground: Ground): Promise<readonly string[]> {
  const story: string[] = [];
  const told = new Set<string>();
  const kinds = new Map<string, number>();
  for (const { wrong } of findings) kinds.set(wrong, (kinds.get(wrong) ?? 0) + 1);
  story.push(`  ${[...kinds].map(([wrong, count]) => `${count} ${wrong}`).join(", ")}`);
  for (const { wrong, text, ids } of findings) {
    if (told.size >= most) break;
    if (told.has(`${wrong} ${ids.at(-1) ?? text}`)) continue;
    told.add(`${wrong} ${ids.at(-1) ?? text}`);
    story.push(`  ${wrong}: ${text}`);
    for (const id of ids) story.push(...(await eventStory(id, history, ground)).map((line) => `      ${line}`));
    const moments = history.arrivals.filter((each) => ids.includes(each.id)).map(({ at }) => at);
    const near = (at: number): boolean => moments.some((moment) => Math.abs(moment - at) < aroundMs);
    const happened = [
      ...history.timeline,
      ...history.said.map(({ at, relay, line }) => ({ at, what: `${relay} says ${JSON.stringify(line).slice(0, 300)}` })),
    ];
    const shown = happened.filter(({ at }) => near(at)).sort((a, b) => a.at - b.at);
    story.push(...shown.slice(0, 40).map(({ at, what }) => `      ${seconds(at)}  ${what}`));
  }
  return story;
}

async function eventStory(id: string, { arrivals, written, takenBack }: History, ground: Ground): Promise<readonly string[]> {
  const [row] = await ground
    .sql(
      "SELECT seq, aggregate_type, aggregate_id, state, retry_count, created_at, available_at, next_attempt_at, published_at, last_error, hold, lane FROM outbox_events WHERE id = $1",
      [id],
    )
    .catch(() => []);
  const how = written.get(id);
  const came = arrivals.filter((each) => each.id === id);
  const aggregate = came[0]?.aggregate ?? (row === undefined ? null : `${String(row["aggregate_type"])}/${String(row["aggregate_id"])}`);
  const others = arrivals.filter((each) => each.aggregate === aggregate && each.id !== id);
  const at = came[0]?.at ?? how?.at ?? 0;
  const beside = [...others.filter((each) => each.at <= at).slice(-3), ...others.filter((each) => each.at > at).slice(0, 3)];
  return [
    `event ${id}`,
    how === undefined
      ? "no writer knows it"
      : `${how.what}, ${how.end} at ${seconds(how.at)}${takenBack.has(id) ? ", taken back to a savepoint" : ""}`,
    row === undefined ? "there is no row" : `row: ${JSON.stringify(row)}`,
    ...came.map(
      (each) => `came at ${seconds(each.at)} from ${each.relay}${each.stored ? "" : ", refused"}${each.answered ? "" : ", unanswered"}`,
    ),
    ...beside.map((each) => `    beside it: #${each.seq} at ${seconds(each.at)} from ${each.relay}${each.stored ? "" : ", refused"}`),
  ];
}
