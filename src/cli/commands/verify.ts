import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock as clock } from "../../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { seededRandom } from "../../core/random.ts";
import { count, redactText } from "../../core/text.ts";
import type { Adapters } from "../adapters.ts";
import { command, flag } from "../parse.ts";
import { brokerFlag, brokerPlace, storeFlag, storePlace, urlOnly } from "../places.ts";
import { asIs, whole, type Read } from "../read.ts";
import { redact } from "../redact.ts";
import type { Terminal } from "../terminal.ts";
import { accessTo } from "../url.ts";
import { checkReport, ownWords, tell } from "../verify/answer.ts";
import { kindsOf, torment, unmetOf } from "../../proof/run/nemesis.ts";
import { openRunBroker, patient, type Access } from "../../proof/run/access.ts";
import { openNetwork, type Network } from "../../proof/run/network.ts";
import { freshReader } from "../../proof/run/reads.ts";
import { leftWords, notesOf, reportOf, type About, type Left, type RunReport } from "../verify/report.ts";
import { remove, run, type RunResult } from "../../proof/run/run.ts";
import { canariesOf, ownText } from "../verify/secrets.ts";
import type { RunPlace } from "../../proof/run/task.ts";

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
    minutes: flag.value("N", "how long to break things, from 0.05 to 600; 0.5 is half a minute (default: 1)", minutes),
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
    const [storeAt, brokerAt] = [storePlace(terminal, values), brokerPlace(terminal, values)];
    if (storeAt === undefined || brokerAt === undefined)
      throw new WaybillError("USAGE", "waybill verify needs --store URL and --broker URL: it publishes from one to the other");
    const [store, broker] = [urlOnly("store", storeAt, "verify"), urlOnly("broker", brokerAt, "verify")];
    const access = accessTo(terminal.adapters);
    for (const refuse of [() => access.store(store), () => access.broker(broker)]) refuse();
    if (values.report !== undefined) checkReport(values.report);
    const seed = values.seed ?? randomBytes(4).readUInt32BE() >>> 1;
    await verified(terminal, { access, store, broker, seed, minutes: values.minutes ?? 1, report: values.report, keep: values.keep });
  },
});

interface Wanted {
  readonly access: Access;
  readonly store: string;
  readonly broker: string;
  readonly seed: number;
  readonly minutes: number;
  readonly report: string | undefined;
  readonly keep: boolean;
}

async function verified({ out, onSignal, adapters }: Terminal, wanted: Wanted): Promise<void> {
  const startedAt = new Date(clock.now()).toISOString();
  const name = `verify_${randomBytes(4).toString("hex")}`;
  const direct: RunPlace = { store: wanted.store, broker: wanted.broker, run: name };
  const folder = mkdtempSync(join(tmpdir(), `waybill-${name}-`));
  const asked = new AbortController();
  onSignal(() => asked.abort());
  const lines: string[] = [];
  const say = (text: string): void => {
    lines.push(text);
    if (!out.json) out.line(`${new Date(clock.now()).toISOString().slice(11, 19)} ${text}`);
  };
  const { seed, minutes } = wanted;
  const about = { run: name, seed, minutes, store: redact(wanted.store, adapters), broker: redact(wanted.broker, adapters), startedAt };
  const made = new Set<"store" | "broker">();
  let report: RunReport | null = null;
  let failure: Error | null = null;
  try {
    report = await judged({ adapters, wanted, direct, folder, lines, say, signal: asked.signal, about, making: (what) => made.add(what) });
  } catch (error) {
    failure = asked.signal.aborted ? new WaybillError("STOPPED", "verify was stopped before it could judge") : asError(error);
  }
  // The histories of a broken promise, or of processes that could not go on, are worth more than a tidy folder.
  const telling = (): boolean => (report === null ? !asked.signal.aborted && readdirSync(folder).length > 0 : !report.held);
  const left = await tidy(wanted.access, direct, made, folder, wanted.keep, telling);
  if (report === null) throw withWords(failure!, left === null ? [] : leftWords(left));
  const unwritten = tell(out, { ...report, left }, wanted.report);
  if (!report.held) throw broken(report);
  if (unwritten !== null) throw unwritten;
}

/** Removes what the run created, and reports what is still there. */
async function tidy(
  access: Access,
  direct: RunPlace,
  made: ReadonlySet<"store" | "broker">,
  folder: string,
  keep: boolean,
  telling: () => boolean,
): Promise<Left | null> {
  const notRemoved = keep ? [] : (await remove(access, direct, made)).map(redactText);
  const histories = keep || telling() ? folder : null;
  if (histories === null) rmSync(folder, { recursive: true, force: true });
  return histories === null && notRemoved.length === 0 ? null : { run: direct.run, kept: keep, histories, notRemoved };
}

/** Without a report, the failure is the only output, so it also says what is left. */
function withWords(failure: Error, words: readonly string[]): Error {
  if (words.length === 0) return failure;
  const message = [failure.message, ...words].join("; ");
  return isWaybillError(failure) ? new WaybillError(failure.code, message, { cause: failure }) : new Error(message, { cause: failure });
}

/**
 * Short, so that many leases expire in a minute, but longer than a healthy store's longest wait: a lease that expires then would cost
 * copies too. A file has one writer at a time, and does not serve waiting writers in order.
 */
const leaseMsOf = (oneWriter: boolean): number => (oneWriter ? 5_000 : 3_000);
/** A relay begins no publish with less than a quarter of its time; timers are exact to some milliseconds. */
const answerShare = 0.24;
const program = fileURLToPath(new URL(`../verify/worker${extname(import.meta.url)}`, import.meta.url));

interface Judging {
  readonly adapters: Adapters;
  readonly wanted: Wanted;
  readonly direct: RunPlace;
  readonly folder: string;
  /** What has been said so far. */
  readonly lines: readonly string[];
  say(text: string): void;
  readonly signal: AbortSignal;
  readonly about: Omit<About, "notes" | "left">;
  making(what: "store" | "broker"): void;
}

async function judged({ adapters, wanted, direct, folder, lines, say, signal, about, making }: Judging): Promise<RunReport> {
  const { access } = wanted;
  const notes = [
    "The faults are those of processes (SIGKILL, SIGSTOP) and of a network of our own in between, where there can be one. The servers were left alone.",
    "The broker was read at the end by a fresh consumer of the adapter itself.",
  ];
  const open = async (what: "store" | "broker"): Promise<Network | null> => {
    const opened = await openNetwork(direct[what], access[what](direct[what]).adapter.server);
    if (typeof opened !== "string") return opened;
    notes.push(`The network to the ${what} was not broken: ${opened}.`);
    return null;
  };
  await using store = await open("store");
  await using broker = await open("broker");
  const networks = { store, broker };
  const { looked, common } = canariesOf([wanted.store, wanted.broker], ownText(), adapters);
  if (common.length > 0)
    notes.push(
      "A password is also a word that comes out anyway. It was looked for where only a secret stands: in a URL, and after a word such as password.",
    );
  const told = (result: RunResult): RunReport => {
    const unmet = unmetOf(kindsOf(networks), result.history);
    const short = unmet.length === 0 ? [] : [`The time was too short for every kind of fault. These did not occur: ${unmet.join(", ")}.`];
    return reportOf(result, { ...about, notes: [...notes, ...short, ...notesOf(result)], left: null });
  };
  say(`run ${direct.run}, seed ${wanted.seed}: ${count(kindsOf(networks).length, "kind")} of faults for ${wanted.minutes} min`);
  const random = seededRandom(wanted.seed);
  const oneWriter = access.store(direct.store).adapter.oneWriter === true;
  const leaseMs = leaseMsOf(oneWriter);
  const publishTimeoutMs = leaseMs / 2;
  const result = await run({
    place: { ...direct, store: store?.url ?? direct.store, broker: broker?.url ?? direct.broker },
    ...{ access, direct: () => direct, folder, program, clock, random, seed: wanted.seed, signal, making },
    crew: { writers: 2, relays: 2, subscribers: 2 },
    relay: {
      ...{ batch: 50, batchesInFlight: 2, leaseMs, publishTimeoutMs, pollIntervalMs: 50, housekeeping: false },
      probeMs: { first: 100, last: 1_000 },
    },
    seatMs: leaseMs,
    load: { aggregates: 12, hot: 0.3, pauseMs: 10, sleepMs: 50, bytes: 120, hard: 0.3, large: 0.002 },
    read: freshReader(() => openRunBroker(access, direct, patient), signal),
    nemesis: (scene) => torment(scene, { networks, oneWriter, leaseMs, forMs: wanted.minutes * 60_000, announce: say }),
    heal() {
      for (const network of [store, broker]) network?.proxy.heal();
    },
    restMs: 120_000,
    // A user's server may be slow without a fault of this run.
    bounds: { latencyMs: 10_000, recoveryMs: 20_000, answerMs: publishTimeoutMs * answerShare },
    canaries: [randomBytes(9).toString("hex"), ...looked],
    commonCanaries: common,
    said: (of) => ownWords(lines, told(of)),
    phase: (phase) => say(`${phase} …`),
  });
  return told(result);
}

function broken({ verdicts }: RunReport): WaybillError {
  const named = verdicts.filter(({ verdict }) => verdict !== "holds").map(({ invariant, verdict }) => `${invariant} (${verdict})`);
  return new WaybillError("PROMISE_BROKEN", `${count(named.length, "promise was", "promises were")} not kept: ${named.join(", ")}`);
}
