import type { Played } from "./play.ts";

const counts = (of: Iterable<readonly [string, number]>): string => [...of].map(([what, count]) => `${count} ${what}`).join(", ");

/** One line for a segment; where it did not hold, more. */
export function lineOf({
  segment,
  events,
  seconds,
  restSeconds,
  copies,
  unanswered,
  laid,
  happened,
  dead,
  findings,
  story,
  folder,
}: Played): readonly string[] {
  const costs = [...laid].filter(([, { copies }]) => copies > 0).map(([kind, { copies, most }]) => `${kind} ${copies}, at most ${most}`);
  const line = [
    `segment ${segment.nth}${segment.isQuiet ? " (gentle)" : ""}, answers after ${segment.answerMs} ms: ${events} events in ${seconds.toFixed(0)} s`,
    counts(happened) || "nothing happened",
    `${copies} copies${unanswered > 0 ? `, ${unanswered} of them unanswered before` : ""}${costs.length > 0 ? ` (${costs.join("; ")})` : ""}`,
    ...(dead > 0 ? [`${dead} dead`] : []),
    `rest after ${restSeconds.toFixed(1)} s`,
    findings.length === 0 ? "held" : `${findings.length} FINDINGS`,
  ].join(" · ");
  return findings.length === 0 ? [line] : [line, ...story, `  histories: ${folder}`];
}

export function summaryOf(all: readonly Played[], seconds: number): readonly string[] {
  const total = (of: (played: Played) => number): number => all.reduce((sum, played) => sum + of(played), 0);
  const happened = new Map<string, number>();
  const laid = new Map<string, { copies: number; most: number }>();
  for (const played of all) {
    for (const [what, count] of played.happened) happened.set(what, (happened.get(what) ?? 0) + count);
    for (const [kind, { copies, most }] of played.laid) {
      const known = laid.get(kind) ?? { copies: 0, most: 0 };
      laid.set(kind, { copies: known.copies + copies, most: Math.max(known.most, most) });
    }
  }
  const failed = all.filter(({ findings }) => findings.length > 0);
  return [
    `${all.length} segments in ${Math.round(seconds)} s: ${total(({ events }) => events)} events, ${counts(happened)}`,
    `copies: ${total(({ copies }) => copies)}; ${[...laid].map(([kind, { copies, most }]) => `${kind} ${copies}, at most ${most}`).join("; ")}`,
    failed.length === 0 ? "all held" : `${failed.length} segments did not hold: ${failed.map(({ segment }) => segment.nth).join(", ")}`,
  ];
}
