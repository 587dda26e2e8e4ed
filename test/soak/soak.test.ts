import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { fork } from "../simulation/plan.ts";
import { faultsOn } from "./fault-names.ts";
import { brokers, commandOf, everything, legOf, levels, levelsIn, narrowed, optionNames, stores, whole, type Cut } from "./plan.ts";
import type { Played } from "./play.ts";
import { reduce } from "./reduce.ts";
import { growthIn, growthOver, type Use } from "./watch.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const choice = { stores, brokers };

describe("the soak's plan", () => {
  test("is the same for the same seed and leg, and another for another", () => {
    expect(legOf(7, 3)).toEqual(legOf(7, 3));
    expect(legOf(7, 4)).not.toEqual(legOf(7, 3));
    expect(legOf(8, 3)).not.toEqual(legOf(7, 3));
  });

  test("has every level, version, fault and switch within 400 legs", () => {
    const met = new Set(Array.from({ length: 400 }, (_, nth) => levelsIn(legOf(11, nth))).flat());
    expect(everything(choice).filter((level) => !met.has(level))).toEqual([]);
  });

  test("takes only from the servers it was narrowed to, and leaves the other options as they were", () => {
    for (let nth = 0; nth < 50; nth++) {
      const leg = legOf(5, nth, { stores: ["mariadb"], brokers: ["redis", "nats"] });
      expect(leg.store.name).toBe("mariadb");
      expect(["redis", "nats"]).toContain(leg.broker.name);
      expect(leg.options.coordination).toBe(legOf(5, nth).options.coordination);
      expect(leg.options.listen).toBe("no");
    }
  });

  test("breaks no server where there is only a file", () => {
    for (let nth = 0; nth < 50; nth++) {
      const { faults } = legOf(5, nth, { stores: ["sqlite"], brokers: ["embedded"] });
      for (const { name } of faults) expect(faultsOn({ store: "sqlite", broker: "embedded" })).toContain(name);
      expect(faults.filter(({ name }) => name.includes(":"))).toEqual([]);
    }
  });

  test("lasts a minute or two, and its faults lie within", () => {
    for (let nth = 0; nth < 200; nth++) {
      const { seconds, faults } = legOf(3, nth);
      expect(seconds).toBeGreaterThanOrEqual(60);
      expect(seconds).toBeLessThanOrEqual(120);
      for (const { at } of faults) expect(at).toBeLessThan(0.95);
    }
  });
});

/** A leg that fails when it has these two faults and this option, and lasts ten seconds or more. */
const played = (leg: Played["leg"], failures: Played["failures"]): Played => ({
  ...{ leg, failures, held: failures.length === 0, counts: null, pardons: {}, caused: [], restMs: 0, watched: null, notes: [] },
  ...{ folder: null, seconds: 0 },
});

describe("a leg that fails", () => {
  const leg = legOf(21, 2);
  const [one, two] = [leg.faults[1]!, leg.faults.at(-1)!];
  const odd = optionNames.find((name) => leg.options[name] !== levels[name][0])!;
  const { signal } = new AbortController();
  const broken = [{ invariant: "order", verdict: "broken", why: "" }] as const;
  const fails = (of: Played["leg"]): boolean => of.faults.includes(one) && of.faults.includes(two) && of.options[odd] !== levels[odd][0];

  const smallest = (tries: number): ReturnType<typeof reduce> => {
    let left = tries;
    return reduce({
      ...{ leg, cut: whole, failed: played(leg, broken), signal, tried: () => undefined, forget: () => undefined },
      play: async (of) => played(of, fails(of) ? broken : []),
      isOver: () => left-- <= 0,
    });
  };

  test("is made shorter, and loses the faults and options that it fails without", async () => {
    const { cut } = await smallest(1_000);
    const small = narrowed(leg, cut);
    expect(small.faults).toEqual([one, two]);
    expect(small.seconds).toBe(15);
    expect(optionNames.filter((name) => small.options[name] !== levels[name][0])).toEqual([odd]);
    expect(small.store.version).toBe(narrowed(leg, { ...whole, plain: ["versions"] }).store.version);
  });

  test("is left as it is when there is no time, and is never made into one that holds", async () => {
    expect((await smallest(0)).cut).toEqual(whole);
    for (let tries = 1; tries < 30; tries++) expect(fails(narrowed(leg, (await smallest(tries)).cut))).toBe(true);
  });

  test("that fails in another way is no smaller form of it", async () => {
    const { cut } = await reduce({
      ...{ leg, cut: whole, failed: played(leg, broken), signal, tried: () => undefined, forget: () => undefined },
      play: async (of) => played(of, [{ invariant: "no loss", verdict: "unknown", why: "" }]),
      isOver: () => false,
    });
    expect(cut).toEqual(whole);
  });

  test("and is called off meanwhile has not failed because of that", async () => {
    const ending = new AbortController();
    const { cut } = await reduce({
      ...{ leg, cut: whole, failed: played(leg, broken), signal: ending.signal, tried: () => undefined, forget: () => undefined },
      play: async (of) => {
        ending.abort();
        return played(of, broken);
      },
      isOver: () => ending.signal.aborted,
    });
    expect(cut).toEqual(whole);
  });

  test("is told as a command that plays it", () => {
    const cut: Cut = { faults: [1, 4], plain: ["batch", "versions"], seconds: 15 };
    expect(commandOf(leg, cut, ["--store postgres"])).toBe(
      "npm run test:soak -- --seed 21 --leg 2 --store postgres --faults 1,4 --plain batch,versions --seconds 15",
    );
    expect(commandOf(leg, { ...whole, faults: [] }, [])).toBe("npm run test:soak -- --seed 21 --leg 2 --faults none");
  });
});

describe("what a leg uses", () => {
  const random = fork(1, "uses");
  const life = (of: (second: number) => Partial<Use>): ReadonlyMap<string, readonly Use[]> =>
    new Map([["relay-1 (7)", Array.from({ length: 80 }, (_, at) => ({ atMs: at * 1_000, rssMiB: 80, files: 30, ...of(at) }))]]);

  test("is no leak while it goes up and down, or comes to one peak", () => {
    expect(growthIn(life(() => ({ rssMiB: 80 + random.next() * 90, files: 30 + Math.floor(random.next() * 20) })))).toEqual([]);
    expect(growthIn(life((at) => (at === 70 ? { rssMiB: 390 } : {})))).toEqual([]);
  });

  test("is a leak where it only goes up", () => {
    expect(growthIn(life((at) => ({ files: 30 + at })))).toEqual([]);
    expect(growthIn(life((at) => ({ files: 30 + 2 * at })))).toEqual(["relay-1 (7) grew from 108 to 150 open files"]);
    expect(growthIn(life((at) => ({ rssMiB: 80 + 4 * at })))).toEqual([]);
    expect(growthIn(life((at) => ({ rssMiB: 80 + 6 * at })))).toEqual(["relay-1 (7) grew from 314 to 440 MiB of memory"]);
  });

  test("grows over the legs where each leaves files open", () => {
    const uses = (of: (leg: number) => number): readonly Use[] =>
      Array.from({ length: 9 }, (_, at) => ({ atMs: at, rssMiB: 200, files: of(at) }));
    expect(growthOver(uses((at) => 25 + 3 * at))).toContain("grew from 31 to 49");
    expect(growthOver(uses((at) => (at < 2 ? 25 : 41)))).toBeNull();
  });
});

describe("npm run test:soak", () => {
  const soak = (...args: readonly string[]) =>
    spawnSync(process.execPath, ["scripts/run-ts.mjs", "test/soak/index.ts", ...args], { cwd: root, encoding: "utf8", timeout: 60_000 });

  test.each([
    [["--bogus"], "Unknown option '--bogus'"],
    [["--minutes", "0"], "--minutes must be a whole number of 1 or more"],
    [["--store", "oracle"], '--store "oracle" is none of postgres, mariadb, mysql, sqlite'],
    [["--broker", "kafka,pigeons"], '--broker "pigeons" is none of'],
    [["--leg", "3"], "name it with --seed"],
    [["--faults", "1"], "name it with --leg"],
    [["--seed", "1", "--leg", "1", "--plain", "speed"], '--plain "speed" is none of'],
  ])("refuses %j with a sentence and exit code 2", (args, told) => {
    const { status, stderr } = soak(...args);
    expect(stderr).toContain(told);
    expect(stderr).toContain("usage: npm run test:soak -- ");
    expect(status).toBe(2);
  });

  test("--plan tells the legs of a seed, and plays none; --help tells its usage", () => {
    const { status, stdout } = soak("--plan", "--seed", "21", "--leg", "2", "--store", "sqlite", "--broker", "embedded", "--seconds", "20");
    expect(stdout).toContain("leg 2 of seed 21: sqlite × embedded, 20 s;");
    expect(status).toBe(0);
    const help = soak("--help");
    expect(help.status).toBe(0);
    expect(help.stdout).toContain("usage: npm run test:soak -- ");
  });
});
