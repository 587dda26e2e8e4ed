import type { RunResult } from "../../../src/proof/run/run.ts";

interface Line {
  /** On the clock of the history. */
  readonly shared: number;
  readonly type: string;
  readonly code?: string | null;
  readonly error?: string;
}

/** What the workers whose names begin so have logged, by file: one for each of their lives. */
export function logsOf({ reads }: RunResult, worker: string): readonly { readonly where: string; readonly lines: readonly Line[] }[] {
  return (reads.outputs ?? [])
    .filter(({ where }) => where.startsWith(worker) && where.endsWith(".log"))
    .map(({ where, text }) => ({
      where,
      // The last one of a process that was killed may be cut short.
      lines: text.split("\n").flatMap(whole),
    }));
}

function whole(line: string): readonly Line[] {
  try {
    return [JSON.parse(line) as Line];
  } catch {
    return [];
  }
}

const linesOf = (result: RunResult, worker: string): readonly Line[] => logsOf(result, worker).flatMap(({ lines }) => lines);

/** Of a broker that does not take messages. */
export const publishFelt = ({ history }: RunResult): string | null =>
  history.some(({ op, phase }) => op === "publish" && (phase === "failed" || phase === "unknown"))
    ? null
    : "no publish failed or was left without an answer";

/** Of a broker whose disk takes nothing: within this time, and so before it is started again. */
export const diskFelt =
  (withinMs: Readonly<Record<string, number>>) =>
  ({ history }: RunResult): string | null => {
    const harmed = history.flatMap(({ op, phase, at }) => (op === "publish" && (phase === "failed" || phase === "unknown") ? [at] : []));
    const begun = history.flatMap((entry) => (entry.op === "fault" && entry.phase === "invoked" ? [entry] : []));
    const unfelt = Object.entries(withinMs).find(([kind, ms]) => {
      const rounds = begun.filter(({ fault }) => fault === kind);
      return rounds.length > 0 && !rounds.some(({ at }) => harmed.some((when) => when > at && when < at + ms));
    });
    return unfelt === undefined ? null : `no publish failed or was left without an answer by "${unfelt[0]}" itself`;
  };

/** Of a broker that has everything several times. */
export const copiesFelt = ({ counts }: RunResult): string | null => (counts.copies > 0 ? null : "nothing came twice");

/** Of a database that does not answer a COMMIT. */
export const commitFelt = (result: RunResult): string | null =>
  result.history.some(({ op, phase }) => op === "add" && phase === "unknown") ||
  linesOf(result, "writer").some(({ code }) => code === "COMMIT_UNKNOWN")
    ? null
    : "no writer was left without the answer to its COMMIT";

/** A process may tell of what it has felt so much later, on a busy machine; but not after the next fault has begun. */
const lateMs = 5_000;

/** Of a database that is not there, or ends connections: a writer's transaction fails, or a relay tells of it. */
export function storeFelt(result: RunResult): string | null {
  const lines = [...linesOf(result, "writer"), ...linesOf(result, "relay")].filter(
    ({ type, code }) => type === "writer.failed" || (type === "relay.trouble" && code === "STORE_UNAVAILABLE"),
  );
  const { history } = result;
  const met = history.some((begun, i) => {
    if (begun.op !== "fault" || begun.phase !== "invoked") return false;
    const later = history.slice(i + 1);
    const end = later.find((entry) => entry.op === "fault" && entry.phase === "ok" && entry.fault === begun.fault);
    const next = later.find((entry) => entry.op === "fault" && entry.phase === "invoked");
    const until = Math.min((end?.at ?? Infinity) + lateMs, next?.at ?? Infinity);
    return lines.some(({ shared }) => shared > begun.at && shared < until);
  });
  return met ? null : "no writer's transaction failed, and no relay told of trouble, while the database was not there";
}

/** Of a database that does not take rows: it refuses them, or keeps everybody waiting until it can. */
export const writerFelt = (result: RunResult): string | null =>
  linesOf(result, "writer").some(({ type }) => type === "writer.failed") || stood(result, "disk full")
    ? null
    : "no writer was refused, and none had to wait";

/** Of a database that is silent: whoever is patient enough only waits. */
export const silenceFelt =
  (fault: string) =>
  (result: RunResult): string | null =>
    stood(result, fault) ? null : `transactions were committed throughout every "${fault}"`;

const stillMs = 1_000;

/** Nothing was committed in the last second of one of these faults. */
function stood({ history }: RunResult, fault: string): boolean {
  const commits = history.flatMap((entry) => (entry.op === "add" && entry.phase === "ok" ? [entry.at] : []));
  const ends = history.flatMap((entry) => (entry.op === "fault" && entry.phase === "ok" && entry.fault === fault ? [entry.at] : []));
  return ends.some((end) => !commits.some((at) => at < end && at > end - stillMs));
}

const mostLines = 60;

/** A line for each change of state, and not for each attempt. */
export function fewLines(result: RunResult): string | null {
  const long = logsOf(result, "relay").find(({ lines }) => lines.length > mostLines);
  return long === undefined ? null : `${long.where} has ${long.lines.length} lines, and ${mostLines} are the most for one outage`;
}

/**
 * Whoever was frozen past its lease says that its lanes are lost once it is awake; but one that was frozen inside a transaction has its
 * lanes' rows locked until then, and so still has the lanes. At least one must have lost them.
 */
export function lanesLost(result: RunResult): string | null {
  const lost = faultsOf(result, "freeze").some(({ target, at }) =>
    linesOf(result, `${target}.`).some((line) => line.type === "lanes.lost" && line.shared > at),
  );
  return lost ? null : "relays were frozen past their leases, and none told of lost lanes";
}

const faultsOf = ({ history }: RunResult, fault: string): readonly { readonly target: string; readonly at: number }[] =>
  history.flatMap((entry) => (entry.op === "fault" && entry.phase === "invoked" && entry.fault === fault ? [entry] : []));

/** After an operator's work. */
export function nothingDead({ reads }: RunResult): string | null {
  const left = reads.outbox?.filter(({ state }) => state === "DEAD" || state === "BLOCKED").length ?? 0;
  return left === 0 ? null : `${left} events are DEAD or BLOCKED after the redrive`;
}

export const noFiles = "no more files";

const tooMany = /EMFILE|too many open files|unable to open database file/i;

/** Of a relay that may open no more files: it says so. */
export function filesFelt(result: RunResult): string | null {
  const unfelt = faultsOf(result, noFiles).find(
    ({ target, at }) => !linesOf(result, `${target}.`).some(({ shared, error = "" }) => shared > at && tooMany.test(error)),
  );
  return unfelt === undefined ? null : `${unfelt.target} could open no more files, and did not say so`;
}
