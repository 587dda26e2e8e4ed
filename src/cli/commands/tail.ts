import type { LogLook, LogPlace } from "../../contracts/log-tailer.ts";
import type { TailStatus } from "../../contracts/operator.ts";
import type { LogObject } from "../../contracts/tail-setup.ts";
import type { Tail } from "../../contracts/tail-ledger.ts";
import { systemClock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { inBytes } from "../../core/text.ts";
import { behindInWords, standingInWords } from "../../stores/kit/log-words.ts";
import type { CommandStore } from "../open.ts";
import { fields } from "../output.ts";
import { command, flag } from "../parse.ts";
import { logFlag, storeFlag } from "../places.ts";
import type { Terminal } from "../terminal.ts";
import { storeOf } from "./shared.ts";
import { reader } from "./status.ts";
import { usage } from "../usage.ts";

const flags = { ...storeFlag, ...logFlag };
const example = (name: string): string => `waybill tail ${name} --store postgres://user@host/shop`;

/** Of a store whose log a relay can read. */
function tailOf({ store, noTail }: CommandStore): Tail {
  if (store.tail === undefined) throw new WaybillError("UNSUPPORTED", `waybill tail: ${noTail}`);
  return store.tail;
}

const isRead = ({ state }: LogLook): boolean => state === "streaming" || state === "lagging" || state === "waits for standby";
const named = (objects: readonly LogObject[]): string => objects.map(({ what, name }) => `the ${what} ${name}`).join(" and ");

const setup = command({
  name: "tail setup",
  summary:
    "Makes what a relay needs to read PostgreSQL's log: a publication and a replication slot. Safe to repeat; a relay with --mode tail does it too.",
  flags: { ...flags, print: flag.switch("only print the statements, for a database administrator") },
  examples: [example("setup"), `${example("setup")} --print`],
  async run(terminal, values) {
    const { out } = terminal;
    await using opened = await storeOf(terminal, values, false, false);
    const { tailer, setup: log } = tailOf(opened);
    if (values.print) {
      const statements = await log.print();
      return out.answer({ statements }, () => statements.trimEnd().split("\n"));
    }
    await opened.store.schema.check();
    const before = await tailer.look();
    const had = await log.found();
    const place = isRead(before) ? null : await prepared(terminal, opened);
    const [after, found] = [await tailer.look(), await log.found()];
    const isNew = ({ what }: LogObject): boolean =>
      !had.some((each) => each.what === what) || (what === "replication slot" && place !== null && isAnother(before, after));
    const made = found.filter(isNew);
    out.answer({ made, found, place, slot: after }, () => [
      made.length === 0 ? `Nothing was missing: there is ${named(found)}.` : `Made ${named(made)}.`,
      isRead(after)
        ? "A process reads the log."
        : `The server keeps its log for the slot from now on: start a relay with --mode tail or --mode auto, or let waybill tail drop remove it.`,
    ]);
  },
});

/** A slot that could not be used any more is replaced by one of the same name. */
const isAnother = (before: LogLook, after: LogLook): boolean => before.state === "lost" || before.confirmed !== after.confirmed;

/** How often a person who waits is told what for. */
const toldMs = 5_000;

async function prepared({ out, onSignal }: Terminal, opened: CommandStore): Promise<LogPlace> {
  const { tailer } = tailOf(opened);
  const [giveUp, over] = [new AbortController(), new AbortController()];
  onSignal(() => giveUp.abort());
  let told: string | null = null;
  const telling = (async () => {
    while (!out.json && !over.signal.aborted) {
      await systemClock.sleep(toldMs, over.signal);
      const look = over.signal.aborted ? null : await tailer.look().catch(() => null);
      if (look?.state !== "preparing" || look.waitsFor === null || look.waitsFor === told) continue;
      told = look.waitsFor;
      out.line(`The server makes the slot once every open transaction has ended. It waits for ${told}.`);
    }
  })();
  try {
    return await tailer.prepare(giveUp.signal);
  } finally {
    over.abort();
    await telling;
  }
}

const status = command({
  name: "tail status",
  summary: "Says whether a relay reads the log, how the slot stands, and how much of its log the server keeps.",
  flags,
  examples: [example("status"), `${example("status")} --json`],
  async run(terminal, values) {
    await using opened = await storeOf(terminal, values, false, false);
    const { tailer, setup: log } = tailOf(opened);
    await opened.store.schema.check();
    const { tail } = await opened.store.operator.status();
    const [look, found] = [await tailer.look(), await log.found()];
    const mode = (tail?.relay ?? null) === null ? "poll" : "tail";
    terminal.out.answer({ mode, ...tail, slot: look, found }, () => page(terminal, tail!, look, found));
  },
});

function page({ out }: Terminal, tail: TailStatus, look: LogLook, found: readonly LogObject[]): string[] {
  const { name } = found.find(({ what }) => what === "replication slot") ?? { name: null };
  const sizes = [
    ["position", look.confirmed],
    ["kept for it", inBytes(look.retainedBytes)],
    ["safe for another", look.safeBytes === null ? "no limit: an unread slot fills the disk" : inBytes(Math.max(0, look.safeBytes))],
    ["behind", behindInWords(look)],
  ] as const;
  return fields(out, [
    ["log", reader(tail)],
    ["slot", name === null ? standingInWords(look) : `${name}: ${standingInWords(look)}`],
    ["publication", found.find(({ what }) => what === "publication")?.name ?? "there is none"],
    ["floor", tail.floor],
    ...(look.state === "missing" ? [] : sizes),
  ]);
}

const resync = command({
  name: "tail resync",
  summary: "Drops the slot, so that the relay polls and then begins with a new slot. No event is lost.",
  flags,
  examples: [example("resync")],
  async run(terminal, values) {
    await using opened = await storeOf(terminal, values, false, false);
    const { tailer, setup: log } = tailOf(opened);
    const dropped = (await log.found()).filter(({ what }) => what === "replication slot");
    await tailer.drop();
    terminal.out.answer({ dropped }, () =>
      dropped.length === 0
        ? ["There is no slot. A relay with --mode tail or --mode auto makes one by itself."]
        : [`Dropped ${named(dropped)}.`, "A relay with --mode tail or --mode auto polls now, and makes a new slot by itself."],
    );
  },
});

const drop = command({
  name: "tail drop",
  summary: "Drops slot and publication, so that the server keeps no log for relays. It only says what it would drop, until --yes.",
  flags: { ...flags, yes: flag.switch("do it"), "dry-run": flag.switch("only say what would be dropped") },
  examples: [example("drop"), `${example("drop")} --yes`],
  async run(terminal, values) {
    if (values.yes && values["dry-run"]) usage("--yes and --dry-run do not go together: leave one out");
    await using opened = await storeOf(terminal, values, false, false);
    const { tailer, setup: log } = tailOf(opened);
    const read = isRead(await tailer.look());
    const dropped = values.yes ? await log.remove() : await log.found();
    const again = "A relay with --mode tail or --mode auto makes both anew: give it --mode poll first.";
    terminal.out.answer({ dryRun: !values.yes, dropped, read }, () => {
      if (dropped.length === 0) return ["There is neither a slot nor a publication."];
      if (values.yes) return [`Dropped ${named(dropped)}.`, again];
      const unless = `Nothing was changed.${values["dry-run"] ? "" : " --yes does it."}`;
      return [`Would drop ${named(dropped)}.`, ...(read ? ["A process reads the log now."] : []), again, unless];
    });
  },
});

export const tail = [setup, status, resync, drop];
