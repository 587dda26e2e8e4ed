/** One live setting, as it was read from a server. */
export interface Finding {
  /** As the server calls it, with what it belongs to: `appendfsync`, `min.insync.replicas of order.events`. */
  readonly setting: string;
  /** As it was read; null where it could not be. */
  readonly value: string | null;
  /** `unknown` where the server, its version or our privileges do not let us read the setting. */
  readonly verdict: "good" | "bad" | "unknown";
  /** The promises that a bad value breaks, by their letters in docs/promises.md: `L`, `LO`. */
  readonly breaks: string;
  /** What the value means, and what to do about a bad or unknown one. */
  readonly why: string;
}

export const good = (setting: string, value: string, why: string): Finding => ({ setting, value, verdict: "good", breaks: "", why });
export const bad = (setting: string, value: string | null, breaks: string, why: string): Finding => ({
  setting,
  value,
  verdict: "bad",
  breaks,
  why,
});
export const unknown = (setting: string, value: string | null, why: string): Finding => ({
  setting,
  value,
  verdict: "unknown",
  breaks: "",
  why,
});

/**
 * One setting that doctor looks at. An adapter keeps its rules in a table. Doctor's findings and docs/doctor.md are both generated from
 * the table. Backquotes are for the docs, and findings go without them.
 */
export interface Rule<A> {
  /** As the server calls it: `appendfsync`. */
  readonly setting: string;
  /** When it is bad (or unknown), in a few words for the docs: "`everysec` or `no`". */
  readonly badWhen: string;
  /** The promises that a bad value breaks: "LO". */
  readonly breaks: string;
  /** What to do about a bad value. It ends the sentence of every bad finding: "set `appendfsync always`". */
  readonly remedy: string;
  /** What the answers mean: one finding, several, or none where the rule does not apply. */
  readonly look: (answers: A, say: Say) => Finding | readonly Finding[];
}

/** Makes the findings of one rule. */
export interface Say {
  good(value: string, why: string): Finding;
  /** `why` has no full stop: the remedy follows it. `but` is for a case that breaks other promises, or has another remedy. */
  bad(value: string | null, why: string, but?: { readonly breaks?: string; readonly remedy?: string }): Finding;
  unknown(value: string | null, why: string): Finding;
  /** For a finding under another name than the rule's: `as("alarms of node a")`. */
  as(setting: string): Say;
}

/** Applies every rule to the answers, in the order of the table. `of` names what the answers are about: `retention.ms of order.events`. */
export const applyRules = <A>(rules: readonly Rule<A>[], answers: A, of?: string): readonly Finding[] =>
  rules.flatMap((rule) => rule.look(answers, sayAs(of === undefined ? rule.setting : `${rule.setting} of ${of}`, rule)));

const sayAs = (setting: string, rule: Pick<Rule<never>, "breaks" | "remedy">): Say => ({
  good: (value, why) => good(setting, value, why),
  bad: (value, why, { breaks = rule.breaks, remedy = rule.remedy } = {}) =>
    bad(setting, value, breaks, `${why}: ${remedy.replaceAll("`", "")}.`),
  unknown: (value, why) => unknown(setting, value, why),
  as: (other) => sayAs(other, rule),
});

/** Numbers with dots between them, compared one by one. */
export function isAtLeast(version: string, least: string): boolean {
  const [have, need] = [version, least].map((text) => text.split(".").map((part) => Number.parseInt(part, 10) || 0));
  for (let i = 0; i < need!.length; i++) if ((have![i] ?? 0) !== need![i]) return (have![i] ?? 0) > need![i]!;
  return true;
}
