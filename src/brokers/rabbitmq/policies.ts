import type { Arguments, PolicyAnswers } from "./answers.ts";

/** The settings of the matching policy with the highest priority, and above it those of the matching operator policy. */
export function definitionOf(
  policies: readonly PolicyAnswers[] | Error,
  kind: "queue" | "exchange",
  name: string,
  queueType: string | null,
): Arguments | Error {
  if (policies instanceof Error) return policies;
  const kinds = ["all", `${kind}s`, ...(queueType === null ? [] : [`${queueType}_queues`])];
  const found: Arguments[] = [];
  for (const operator of [false, true]) {
    const fitting: PolicyAnswers[] = [];
    for (const policy of policies) {
      const fits = policy.operator === operator && kinds.includes(policy["apply-to"]) ? matches(policy, name) : false;
      if (fits instanceof Error) return fits;
      if (fits) fitting.push(policy);
    }
    found.push(fitting.sort((a, b) => b.priority - a.priority)[0]?.definition ?? {});
  }
  return Object.assign({}, ...found) as Arguments;
}

function matches({ name: policy, pattern }: PolicyAnswers, name: string): boolean | Error {
  try {
    return new RegExp(pattern).test(name);
  } catch {
    return new Error(`the pattern ${JSON.stringify(pattern)} of the policy ${policy} is one of Erlang's own: see what it says of ${name}`);
  }
}
