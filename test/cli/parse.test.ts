import { describe, expect, test } from "vitest";
import { command, flag, parse } from "../../src/cli/parse.ts";
import { whole } from "../../src/cli/read.ts";
import { isWaybillError } from "../../src/core/errors.ts";

const sample = command({
  name: "sample",
  summary: "A command.",
  words: { shown: "ID", least: 0, most: 2 },
  flags: {
    store: flag.text("URL", "where"),
    batch: flag.value("N", "how many", whole(1, 10)),
    header: flag.repeated("NAME=VALUE", "several"),
    once: flag.switch("one time"),
  },
  examples: ["waybill sample"],
  run: () => Promise.resolve(),
});

const usage = (...argv: string[]): string => {
  try {
    parse(sample, argv);
  } catch (error) {
    if (isWaybillError(error, "USAGE")) return error.message;
    throw error;
  }
  return "nothing was refused";
};

describe("flags", () => {
  test("become typed values, in both spellings and any order", () => {
    const { values, words } = parse(sample, [
      "a",
      "--batch=7",
      "--header",
      "x=1",
      "--once",
      "--store",
      "sqlite:./a.db",
      "--header=y=2",
      "b",
    ]);
    expect(values).toEqual({
      store: "sqlite:./a.db",
      batch: 7,
      header: ["x=1", "y=2"],
      once: true,
      "no-config": false,
      config: undefined,
      json: false,
      help: false,
    });
    expect(words).toEqual(["a", "b"]);
  });

  test("that are unknown are refused with the nearest known one", () => {
    expect(usage("--sotre", "x")).toBe("waybill sample has no flag --sotre: did you mean --store?");
    expect(usage("--frobnicate")).toMatch(/has no flag --frobnicate: there are --store, --batch, --header, --once/);
    expect(usage("-x")).toMatch(/has no flag -x/);
    expect(usage("--no-once")).toMatch(/has no flag --no-once/);
    expect(usage("--toString")).toMatch(/has no flag --toString/);
    expect(usage("--__proto__=1")).toMatch(/has no flag --__proto__/);
  });

  test("of an unknown name never show their value", () => {
    expect(usage("--sotre=postgres://ann:s3cret@db")).not.toContain("s3cret");
  });

  test("without their value are refused", () => {
    expect(usage("--store")).toBe("--store needs a value: --store URL");
    expect(usage("--store", "--once")).toMatch(/^--store needs a value: --store URL, or --store=… /);
    expect(usage("--batch", "-1")).toMatch(/^--batch needs a value/);
    expect(usage("--store=")).toBe("--store must not be empty");
    expect(parse(sample, ["--store", "-"]).values.store).toBe("-");
  });

  test("with a value they cannot have are refused", () => {
    expect(usage("--batch", "many")).toBe('--batch must be a whole number from 1 to 10, not "many"');
    expect(usage("--once=yes")).toBe("--once takes no value");
    expect(usage("--batch", "1", "--batch", "2")).toBe("--batch is given twice");
  });

  test("end at --, and what follows are words", () => {
    expect(parse(sample, ["--", "--once"])).toMatchObject({ values: { once: false }, words: ["--once"] });
  });

  test("words beyond what the command takes are refused", () => {
    expect(usage("a", "b", "c")).toBe('waybill sample does not know what to do with "c"');
  });

  test("--help needs nothing else to be right", () => {
    expect(parse({ ...sample, words: { shown: "ID", least: 1, most: 1 } }, ["-h"]).values.help).toBe(true);
  });
});
