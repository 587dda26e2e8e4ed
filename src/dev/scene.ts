import type { Glance } from "./glance.ts";
import type { CrewMember } from "../proof/crew/crew.ts";
import type { Job } from "./jobs.ts";
import type { News } from "./news.ts";
import { inWords } from "../core/in-words.ts";
import { count } from "../core/text.ts";
import { subscriberNames } from "./shop.ts";

/** Everything that the live view and the plain lines show. */
export interface ShopScene {
  readonly naive: boolean;
  readonly url: string | null;
  readonly phase: "starting" | "running" | "draining" | "done";
  readonly elapsedMs: number;
  readonly glance: Glance | null;
  /** Per second, over the last few seconds. */
  readonly rates: { readonly orders: number; readonly events: number; readonly applied: number };
  readonly members: readonly CrewMember<Job["role"]>[];
  /** The newest last. */
  readonly news: readonly News[];
}

type Tone = "plain" | "bold" | "dim" | "good" | "warn" | "bad";
/** A line as pieces with a tone each, so that it can be cut to a width before it is coloured. */
export type Line = readonly (readonly [Tone, string])[];

const p = (text: string): Line[number] => ["plain", text];

/** The picture for a terminal of this size; the news get the rows that are left. */
export function picture(scene: ShopScene, columns: number, rows: number): readonly Line[] {
  const fixed = [...heading(scene), [], ...numbers(scene).flatMap((line) => wrapped(line, columns)), [], ...processes(scene, columns), []];
  const room = Math.max(3, Math.min(12, rows - fixed.length - 1));
  return [...fixed, ...scene.news.slice(-room).map(newsLine)].slice(0, Math.max(1, rows - 1));
}

function heading({ naive, url, phase, elapsedMs }: ShopScene): Line[] {
  const kind = naive ? "dual writes, no outbox, no inbox" : "outbox on SQLite, embedded broker";
  const state: Line[number] =
    phase === "running" ? ["good", "running"] : phase === "draining" ? ["warn", "draining: finishing what was begun"] : ["dim", phase];
  return [
    [["bold", "waybill dev"], p("  "), [naive ? "bad" : "plain", kind], p(`  ${seconds(elapsedMs)}  `), state],
    [
      ["dim", url === null ? "" : `POST ${url}/orders`],
      ["dim", phase === "running" ? "   Ctrl-C drains" : ""],
    ],
  ];
}

const label = (text: string): Line[number] => ["bold", text.padEnd(indent)];
const indent = 8;

function numbers({ glance, rates, naive }: ShopScene): Line[] {
  if (glance === null) return [[["dim", "…"]]];
  const { status, orders, rolledBack, events, logged, behind } = glance;
  const flow: Line = [
    label("flow"),
    ...[p(`orders ${orders} (${rates.orders.toFixed(1)}/s)  `), p(`rolled back ${rolledBack}  `)],
    ...[
      p(`events ${events} (${rates.events.toFixed(1)}/s)  `),
      p(`in the broker's log ${logged}  `),
      p(`effects ${rates.applied.toFixed(1)}/s`),
    ],
  ];
  const late: Line = [label("behind"), ...subscriberNames.map((name) => tally(name, behind[name], "warn"))];
  if (naive) return [flow, late];
  const { states, holds, breakers, oldestUnpublishedMs, lanes, window } = status;
  const lag = oldestUnpublishedMs === null ? "nothing waits" : `the oldest waits for ${inWords(Math.round(oldestUnpublishedMs))}`;
  return [
    flow,
    [
      label("states"),
      ...(["PENDING", "PUBLISHING", "PUBLISHED"] as const).map((state) => p(`${state} ${states[state]}  `)),
      ...[tally("FAILED", states.FAILED, "warn"), tally("BLOCKED", states.BLOCKED, "warn"), tally("DEAD", states.DEAD, "bad")],
    ],
    [label("lag"), p(`${lag}  `), p(`${window.events} in relays' windows  `), p(`${lanes.owned} of ${lanes.total} lanes owned`)],
    [
      label("holds"),
      tally("aggregates", holds.aggregates, "warn"),
      ...breakers.map(({ destination, aggregates }): Line[number] => [
        "bad",
        `${destination} is broken, ${count(aggregates, "aggregate")} wait  `,
      ]),
    ],
    late,
  ];
}

/** Pieces that do not fit continue on the next row, indented by the label. */
function wrapped(line: Line, columns: number): Line[] {
  const rows: Line[number][][] = [[]];
  let used = 0;
  for (const piece of line) {
    if (used + piece[1].trimEnd().length >= columns && used > indent) {
      rows.push([p(" ".repeat(indent))]);
      used = indent;
    }
    rows.at(-1)!.push(piece);
    used += piece[1].length;
  }
  return rows;
}

const tally = (what: string, n: number, tone: Tone): Line[number] => [n === 0 ? "plain" : tone, `${what} ${n}  `];

const stateTones: Readonly<Record<CrewMember<unknown>["state"], Tone>> = {
  starting: "warn",
  running: "good",
  down: "bad",
  draining: "warn",
  ended: "dim",
};

function processes({ members, glance }: ShopScene, columns: number): Line[] {
  const lanesOf = (name: string): string => {
    const relay = glance?.status.relays.find((one) => one.live && one.relay.startsWith(`${name}.`));
    return relay === undefined ? "" : `${count(relay.lanes.length, "lane")}, `;
  };
  const wide = columns >= 72;
  const head = `${"process".padEnd(14)}${"pid".padStart(7)}  ${"state".padEnd(9)}${wide ? `${"restarts".padStart(8)}${"done".padStart(8)}` : ""}  last`;
  return [
    [["bold", head]],
    ...members.map((member): Line => {
      const figures = wide ? `${String(member.lives - 1).padStart(8)}${String(member.done).padStart(8)}` : "";
      return [
        p(`${member.name.padEnd(14)}${String(member.pid ?? "-").padStart(7)}  `),
        [stateTones[member.state], member.state.padEnd(9)],
        p(`${figures}  ${member.role === "relay" ? lanesOf(member.name) : ""}${member.did}`),
      ];
    }),
  ];
}

const newsTones: Readonly<Record<News["level"], Tone>> = { info: "plain", warn: "warn", error: "bad" };

function newsLine({ at, who, level, text }: News): Line {
  return [
    ["dim", `${clockTime(at)} `],
    ["bold", `${who} `],
    [newsTones[level], text],
  ];
}

/** One line of everything, for logs. */
export function plainLine({ elapsedMs, phase, glance, rates, naive }: ShopScene): string {
  if (glance === null) return `${seconds(elapsedMs)} ${phase}`;
  const { status, orders, events, rolledBack, logged, behind } = glance;
  const late = subscriberNames.map((name) => behind[name]).join("/");
  const { PENDING, PUBLISHING, FAILED, BLOCKED, DEAD } = status.states;
  const outbox = naive
    ? ""
    : ` pending=${PENDING + PUBLISHING} failed=${FAILED} blocked=${BLOCKED} dead=${DEAD} holds=${status.holds.aggregates}`;
  return `${seconds(elapsedMs)} ${phase} orders=${orders} events=${events} (${rates.events.toFixed(1)}/s) rolledBack=${rolledBack} logged=${logged}${outbox} behind=${late}`;
}

export const clockTime = (at: Date): string => at.toISOString().slice(11, 19);

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)}s`;
