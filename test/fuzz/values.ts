import type { Chance } from "./chance.ts";

/** Around every limit that a column, an index, a header or a broker has. */
const lengths = [1, 36, 37, 127, 128, 254, 255, 256, 257, 767, 1_023, 1_024, 1_025, 2_600, 2_700, 2_712, 2_800, 8_191, 8_192] as const;
const longer = [65_535, 65_536, 1_048_576] as const;

/** Characters that mean something to a terminal, a shell, a protocol, a topic's name or a prototype. */
const odd = [
  ...["", " ", "a b", "a\tb", "a\r\nb: c", "\n", "\u0000", "a\u0000b", "\u0007\u001b[2J", "\u009b31m", "\u202eevil", "\u2066x\u2069"],
  ...["\u2028", "\ufeff", "\ud800", "x\udfff", "😀", "👩‍👩‍👧", "é", "e\u0301", "\uffff", "ﬀ"],
  ...["__proto__", "constructor", "toString", "hasOwnProperty", "null", "undefined", "NaN", "true", "0", "-1"],
  ...[
    "*",
    ">",
    "a.>",
    "a.*.b",
    ".",
    "..",
    "a..b",
    "/",
    "../../x",
    "#",
    "$SYS",
    "$JS.API",
    "_INBOX.x",
    "amq.x",
    "%",
    "%s%n",
    "{}",
    "{aggregate_id}",
  ],
  ...["'", '"', "`", "\\", "';--", "' OR 1=1", "${x}", "<script>", "🤖\r\n🤖"],
] as const;

export function hostileText(chance: Chance): string {
  const roll = chance.below(10);
  if (roll < 5) return chance.pick(odd);
  if (roll < 8) return chance.noise(chance.pick(lengths));
  if (roll < 9) return chance.pick(["😀", "é", "\u202e", "\u0085", " ", "a"]).repeat(chance.pick(lengths));
  return chance.pick(["a", "€"]).repeat(chance.pick(longer));
}

const depths = [10, 100, 1_000, 3_000, 6_000, 10_000, 100_000] as const;
const nested = (chance: Chance): string => {
  const depth = chance.pick(depths);
  return chance.is(0.5) ? "[".repeat(depth) + "]".repeat(depth) : '{"a":'.repeat(depth) + "1" + "}".repeat(depth);
};

/** JSON, what some parsers take for it, and what none does. */
export function hostileJson(chance: Chance): string {
  const name = (): string => JSON.stringify(hostileText(chance));
  return chance.pick<() => string>([
    () => nested(chance),
    () => `{"a":${nested(chance)}}`,
    () => `{${name()}:${name()}}`,
    () => `{"a":${name()}}`,
    () => `{${name()}:"x"}`,
    () => chance.pick(["{}", "[]", "null", "true", "1", '"x"', "", " ", "{", "x"]),
    () => chance.pick(['{"a":1}', '{"a":null}', '{"a":true}', '{"a":{}}', '{"a":["b"]}']),
    () => chance.pick(['{"a":1e999}', '{"a":-1e999}', '{"a":123456789012345678901234567890}', '{"a":0.1e-400}', '{"a":01}', '{"a":+1}']),
    () => chance.pick(['{"a":"1","a":"2"}', '{"":"x"}', '{"__proto__":"x"}', '{"constructor":"x"}', '{"toJSON":"x"}']),
    () => chance.pick(['{"a":"\\ud800"}', '{"a":"\\udfff\\ud800"}', '{"a":"\\u0000"}', '{"\\u0000":"a"}', '{"a":"\\x41"}', '{"a":"\t"}']),
    () =>
      chance.pick([
        "{}\u0000",
        '{"a":"b"}\u0000',
        "{} x",
        "{},",
        '{"a":"b",}',
        "{}{}",
        "\ufeff{}",
        "/**/{}",
        "{'a':'b'}",
        "{a:1}",
        "[NaN]",
      ]),
    () =>
      chance.pick(['{"traceparent":"x\\r\\ny: z"}', '{"content-type":"x"}', '{"ce_id":"x"}', '{"ce-id":"x"}', '{"cloudEvents:id":"x"}']),
    () =>
      chance.pick([
        '{"Nats-Msg-Id":"1"}',
        '{"Nats-TTL":"1s"}',
        '{"CC":"x"}',
        '{"x-death":"x"}',
        '{"waybill-dead-consumer":"x"}',
        '{"h_a":"b"}',
      ]),
    () => `{${Array.from({ length: chance.pick([100, 2_000]) }, (_, n) => `"h${n}":"v"`).join(",")}}`,
    () => `{"a":${JSON.stringify("a".repeat(chance.pick([8_192, 65_536, 300_000])))}}`,
  ])();
}

/** What some database takes for a date. */
export const dates = [
  ...["0000-00-00", "0000-00-00 00:00:00", "0000-01-01 00:00:00", "2024-00-10", "2024-02-31", "2024-02-30 10:00:00", "1000-01-01 00:00:00"],
  ...["infinity", "-infinity", "0001-01-01 00:00:00+00", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59", "10000-01-01 00:00:00+00"],
  ...["9999-12-31 23:59:59.999999", "1970-01-01 00:00:00", "1969-12-31 23:59:59", "2038-01-19 03:14:08", "epoch", "now", "tomorrow"],
  ...[
    "2024-13-45T99:99:99.999Z",
    "0000-00-00T00:00:00.000Z",
    "9999-99-99T99:99:99.999Z",
    "2024-01-01T00:00:00.000Z",
    "x",
    "",
    "0",
    "20240101",
  ],
] as const;

export const numbers = [
  ...["0", "-1", "1", "2", "2147483647", "2147483648", "-2147483648", "4294967295", "4294967296", "9007199254740993"],
  ...["9223372036854775807", "9223372036854775808", "-9223372036854775808", "1.5", "1e3", "1e300", "NaN", "", "x", "0x10", " 1 "],
] as const;

export const ids = [
  ...["", "x", "0", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "01ARZ3NDEKTSV4RRFFQ69G5FAV"],
  ...["not-a-uuid", "01890a5d-ac96-774b-bcce-b302099a8057 ", "01890a5d-ac96-774b-bcce-b302099a8057\u0000"],
] as const;

/** A value in few words, so that a megabyte can be told. */
export function tell(text: string): string {
  if (text.length <= 80) return JSON.stringify(text);
  return `${JSON.stringify(text.slice(0, 30))} … ${JSON.stringify(text.slice(-10))} (${text.length} characters)`;
}
