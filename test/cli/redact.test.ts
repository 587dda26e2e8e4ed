import { redactText } from "../../src/core/text.ts";
import { Script } from "node:vm";
import { describe, expect, test } from "vitest";
import { redact } from "../../src/cli/redact.ts";

/** Ends a computation that takes too long: a test's own limit cannot interrupt one that never waits. */
function within(ms: number, work: () => string): string {
  const holder = globalThis as { work?: () => string };
  holder.work = work;
  try {
    return new Script("globalThis.work()").runInThisContext({ timeout: ms }) as string;
  } finally {
    delete holder.work;
  }
}

const million = 1_000_000;
const lines: readonly (readonly [string, string])[] = [
  ["one long word", "a".repeat(million)],
  ["words that begin like a scheme", "a1+.-".repeat(million / 5)],
  ["schemes without an end", "a://".repeat(million / 4)],
  ["schemes and digits", "a:/1/".repeat(million / 5)],
  ["one parameter with a long name", `?${"p".repeat(million)}`],
  ["one name full of secrets' names", `?${"pass".repeat(million / 4)}`],
  ["names full of secrets' names", "&pass".repeat(million / 5)],
  ["a long value", `?token=${"x".repeat(million)}`],
  ["at signs", "@".repeat(million)],
  ["question marks", "?".repeat(million)],
  ["schemes and at signs", "a://@".repeat(million / 5)],
];

describe("V: a line of a megabyte is redacted as quickly as its length allows", () => {
  test.each(lines)("%s", (_, line) => {
    const secret = "amqp://ann:s3cret@mq";
    expect(within(20_000, () => redactText(`${line} ${secret} ${line}`))).not.toContain("s3cret");
    expect(within(20_000, () => redact(line))).toBeTypeOf("string");
    expect(within(20_000, () => redact(`postgres://ann:s3cret@${line}`))).not.toContain("s3cret");
  });
});

test.each([
  ["1http://a:s3cret@b", "1http://***@b"],
  ["x http://a:s3cret@b/c@d y", "x http://***@d y"],
  ["://a:b@c", "://a:b@c"],
  ["1://a:b@c", "1://a:b@c"],
  ["http://host/path http://a:s3cret@b", "http://host/path http://***@b"],
  ["http://host,amqp://a:s3cret@b", "http://***@b"],
  ["mail@host http://b", "mail@host http://b"],
  ["ftp+x.y-z://u:s3cret@h", "ftp+x.y-z://***@h"],
  ["nats://token@h?x=1;my.password=s3cret;y=2", "nats://***@h?x=1;my.password=***;y=2"],
  ["?Access_Token=s3cret&keyboard=1&page=2", "?Access_Token=***&keyboard=***&page=2"],
])("%s is shown as %s", (text, shown) => {
  expect(redactText(text)).toBe(shown);
});
