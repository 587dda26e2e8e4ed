import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock as clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { seededRandom } from "../../core/random.ts";
import { brokerUrl, storeUrl } from "../adapters.ts";
import { brokerFlag, storeFlag } from "../commands/shared.ts";
import { count, table, type Output } from "../output.ts";
import { command, flag } from "../parse.ts";
import { asIs, whole, type Read } from "../read.ts";
import { redact, redactText } from "../redact.ts";
import type { Terminal } from "../terminal.ts";
import { kindsOf, torment } from "./nemesis.ts";
import { openNetwork, type Network } from "./network.ts";
import { page } from "./page.ts";
import { freshReader } from "./reads.ts";
import { reportOf, type Report } from "./report.ts";
import { remove, run, type RunResult } from "./run.ts";
import type { Place } from "./task.ts";

const minutes: Read<number> = (text, refuse) => {
  const value = /^\d{1,3}(\.\d{1,3})?$/.test(text) ? Number(text) : NaN;
  return value >= 0.05 && value <= 600 ? value : refuse(`must be minutes from 0.05 to 600, not ${JSON.stringify(text)}`);
};

export const verify = command({
  name: "verify",
  summary:
    "Checks the promises on servers of yours: runs writers, relays and subscribers as processes between them, kills and freezes these, breaks the network in between, and judges all that was written, published and applied. Everything is in tables, files and topics of the run's own, which go with it.",
  flags: {
    ...storeFlag,
    ...brokerFlag,
    minutes: flag.value("N", "how long to break things; 0.5 is half a minute (default: 1)", minutes),
    seed: flag.value("N", "what workload and faults begin with (default: made up, and told)", whole(0, 2 ** 31 - 1)),
    report: flag.value("PATH", "write a page with a timeline here, and JSON beside it", asIs),
    keep: flag.switch("leave the run's tables, topics and histories where they are, and say where"),
  },
  examples: [
    "waybill verify --store sqlite:./app.db --broker embedded:./broker.db",
    "waybill verify --store postgres://user:password@host/app --broker kafka://host:9092 --minutes 5 --report verify.html",
    "waybill verify --store sqlite:./app.db --broker embedded:./broker.db --minutes 0.2 --seed 7 --json",
  ],
  async run(terminal, values) {
    const { config } = terminal;
    const [store, broker] = [values.store ?? config.store, values.broker ?? config.broker];
    if (store === undefined || broker === undefined)
      throw new WaybillError("USAGE", "waybill verify needs --store URL and --broker URL: it publishes from one to the other");
    for (const refuse of [() => storeUrl(store), () => brokerUrl(broker)]) refuse();
    const seed = values.seed ?? randomBytes(4).readUInt32BE() >>> 1;
    await verified(terminal, { store, broker, seed, minutes: values.minutes ?? 1, report: values.report, keep: values.keep });
  },
});

interface Wanted {
  readonly store: string;
  readonly broker: string;
  readonly seed: number;
  readonly minutes: number;
  readonly report: string | undefined;
  readonly keep: boolean;
}

async function verified(terminal: Terminal, wanted: Wanted): Promise<void> {
  const { out } = terminal;
  const startedAt = new Date(clock.now()).toISOString();
  const name = `verify_${randomBytes(4).toString("hex")}`;
  const direct: Place = { store: wanted.store, broker: wanted.broker, run: name };
  const folder = mkdtempSync(join(tmpdir(), "waybill-verify-"));
  const asked = new AbortController();
  terminal.onSignal(() => asked.abort());
  let held: boolean | null = null;
  try {
    const { result, notes } = await judged(terminal, wanted, direct, folder, asked.signal);
    held = result.judgement.held;
    const { seed, minutes } = wanted;
    const about = { run: name, seed, minutes, store: redact(wanted.store), broker: redact(wanted.broker), startedAt, notes };
    tell(out, reportOf(result, about), wanted.report);
    if (!held) throw broken(result);
  } catch (error) {
    if (asked.signal.aborted) throw new WaybillError("STOPPED", "verify was stopped before it could judge");
    throw error;
  } finally {
    if (wanted.keep) progress(out, `left as they are: ${name} in the store and the broker, histories in ${folder}`);
    else for (const failure of await remove(direct)) progress(out, `${name} could not be removed: ${redactText(failure)}`);
    // What was recorded of a promise that was not kept is worth more than a tidy folder.
    if (!wanted.keep && held === false) progress(out, `the histories are in ${folder}`);
    else if (!wanted.keep) rmSync(folder, { recursive: true, force: true });
  }
}

const leaseMs = 2_000;
const program = fileURLToPath(new URL(`./worker${extname(import.meta.url)}`, import.meta.url));

async function judged(
  { out }: Terminal,
  wanted: Wanted,
  direct: Place,
  folder: string,
  signal: AbortSignal,
): Promise<{ readonly result: RunResult; readonly notes: readonly string[] }> {
  const notes = [
    "The faults are those of processes and of the network: SIGKILL, SIGSTOP, and a network of our own in between. The servers were left alone.",
    "The broker was read at the end by a fresh consumer of the adapter itself.",
  ];
  const open = async (what: "store" | "broker"): Promise<Network | null> => {
    const opened = await openNetwork(direct[what]);
    if (typeof opened !== "string") return opened;
    notes.push(`The network to the ${what} was not broken: ${opened}.`);
    return null;
  };
  await using store = await open("store");
  await using broker = await open("broker");
  const networks = { store, broker };
  progress(out, `run ${direct.run}, seed ${wanted.seed}: ${count(kindsOf(networks).length, "kind")} of faults for ${wanted.minutes} min`);
  const random = seededRandom(wanted.seed);
  const result = await run({
    place: { ...direct, store: store?.url ?? direct.store, broker: broker?.url ?? direct.broker },
    ...{ direct: () => direct, folder, program, clock, random, seed: wanted.seed, signal },
    crew: { writers: 2, relays: 2, subscribers: 2 },
    relay: {
      ...{ batch: 50, batchesInFlight: 2, leaseMs, publishTimeoutMs: leaseMs / 2, pollIntervalMs: 50, housekeeping: false },
      probeMs: { first: 100, last: 1_000 },
    },
    seatMs: leaseMs,
    load: { aggregates: 12, hot: 0.3, pauseMs: 10, sleepMs: 50, bytes: 120, hard: 0.3, large: 0.002 },
    read: freshReader(direct),
    nemesis: (scene) => torment(scene, { networks, leaseMs, forMs: wanted.minutes * 60_000, announce: (text) => progress(out, text) }),
    heal() {
      for (const network of [store, broker]) network?.proxy.heal();
    },
    restMs: 120_000,
    bounds: { latencyMs: 10_000, recoveryMs: 20_000 },
    canaries: [randomBytes(9).toString("hex"), ...[wanted.store, wanted.broker].flatMap(passwordOf)],
    phase: (phase) => progress(out, `${phase} …`),
  });
  if (!result.rested) notes.push("It did not come to rest in time.");
  for (const { worker, words } of result.deaths) notes.push(`${worker} died by itself: ${redactText(words)}`);
  return { result, notes };
}

/** One that is too short is in every text by chance. */
function passwordOf(url: string): readonly string[] {
  const text = /^[a-z]+:\/\/[^@/?#]*?:([^@/?#]*)@/i.exec(url)?.[1] ?? "";
  try {
    return text.length < 6 ? [] : [decodeURIComponent(text)];
  } catch {
    return [text];
  }
}

function progress(out: Output, text: string): void {
  if (!out.json) out.line(`${new Date(clock.now()).toISOString().slice(11, 19)} ${text}`);
}

function tell(out: Output, report: Report, path: string | undefined): void {
  if (path !== undefined) {
    const json = `${path.replace(/\.html?$/i, "")}.json`;
    try {
      writeFileSync(path, page(report));
      writeFileSync(json, `${JSON.stringify(report, null, 2)}\n`);
    } catch (cause) {
      throw new WaybillError("INVALID_OPTION", `--report ${path} cannot be written: ${asError(cause).message}`, { cause });
    }
  }
  out.answer(report, () => {
    const { counts, faults } = report;
    const met = Object.entries(faults).map(([name, times]) => `${name} ${times} ×`);
    return [
      table(
        out,
        ["invariant", "verdict", "why"],
        report.verdicts.map(({ invariant, verdict, why }) => [invariant, verdict, why]),
      ),
      "",
      `${count(counts.events, "event")} committed, ${counts.published} in the broker, ${counts.copies} copies, ${count(counts.effects, "effect")}`,
      `faults: ${met.length === 0 ? "none" : met.join(", ")}`,
      ...report.notes.map((note) => `- ${note}`),
      ...(path === undefined ? [] : [`report: ${path}`]),
      report.held ? "Every promise held." : "NOT every promise held.",
    ].join("\n");
  });
}

function broken({ judgement }: RunResult): WaybillError {
  const named = judgement.verdicts
    .filter(({ verdict }) => verdict !== "holds")
    .map(({ invariant, verdict }) => `${invariant} (${verdict})`);
  return new WaybillError("PROMISE_BROKEN", `${count(named.length, "promise was", "promises were")} not kept: ${named.join(", ")}`);
}
