import { BESIDE_PAYLOAD_BYTES, DEFAULT_MAX_PAYLOAD_BYTES } from "../core/draft.ts";
import { bad, good, unknown, type Finding } from "../core/finding.ts";
import { count, paragraphs, table, visible, type Output } from "./output.ts";
import { redactText } from "./redact.ts";

/** A finding, and whose it is; `path` is what store and broker are to each other. */
export interface Found extends Finding {
  readonly of: "store" | "broker" | "path";
}

/** Servers may repeat what they were told, an address with a password among it. */
export const foundOf =
  (of: Found["of"]) =>
  (finding: Finding): Found => ({
    of,
    ...finding,
    value: finding.value === null ? null : redactText(finding.value),
    why: redactText(finding.why),
  });

export function messageSize(maxBytes: number): Finding {
  const needed = DEFAULT_MAX_PAYLOAD_BYTES + BESIDE_PAYLOAD_BYTES;
  const value = Number.isFinite(maxBytes) && maxBytes < Number.MAX_SAFE_INTEGER ? `${maxBytes} bytes` : "no limit";
  const setting = "largest message";
  if (maxBytes >= needed)
    return good(
      setting,
      value,
      `An event of the default limit (${DEFAULT_MAX_PAYLOAD_BYTES} bytes, maxPayloadBytes) fits with its headers.`,
    );
  return bad(
    setting,
    value,
    "L",
    `Events with up to ${DEFAULT_MAX_PAYLOAD_BYTES} bytes are added, and those that the broker does not take die: raise its limit to ${needed} bytes, or create outboxes with maxPayloadBytes: ${Math.max(1, maxBytes - BESIDE_PAYLOAD_BYTES)} or less.`,
  );
}

export function topicsKnown(topics: readonly string[]): Finding {
  if (topics.length > 0) return good("topics", topics.join(", "), "The broker was asked about each of them.");
  return unknown("topics", null, "No topic was given and the outbox has no events to tell one: name them with --topics A,B.");
}

const promises: Readonly<Record<string, string>> = {
  L: "no loss",
  P: "no phantom",
  O: "order",
  E: "one effect",
  D: "few duplicates",
  I: "isolation",
  V: "nothing silent",
};

/** What is bad first, with what to do; what is good in one line each. */
export function report(out: Output, found: readonly Found[]): string[] {
  const of = (verdict: Finding["verdict"]): readonly Found[] => found.filter((finding) => finding.verdict === verdict);
  const [bads, unknowns, goods] = [of("bad"), of("unknown"), of("good")];
  const told = ({ of: whose, setting, value, breaks, why }: Found): string[] => {
    const broken = breaks === "" ? "" : `, breaks ${[...breaks].map((letter) => `${letter} (${promises[letter] ?? "?"})`).join(" and ")}`;
    return [`  ${whose}: ${out.bold(visible(setting))}${value === null ? "" : ` = ${visible(value)}`}${broken}`, `    ${why}`];
  };
  const section = (title: string, some: readonly Found[]): string[][] =>
    some.length === 0 ? [] : [[out.bold(title), ...some.flatMap(told)]];
  const good = goods.map((finding) => [finding.of, finding.setting, finding.value]);
  return paragraphs([
    [[count(bads.length, "bad setting"), `${unknowns.length} unknown`, `${goods.length} good`].join(", ") + "."],
    ...section("bad", bads),
    ...section("unknown", unknowns),
    ...(good.length === 0 ? [] : [table(out, ["good", "setting", "value"], good)]),
  ]);
}
