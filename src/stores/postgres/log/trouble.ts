import { causesOf, sqlStateOf } from "../../../core/causes.ts";
import { asError } from "../../../core/errors.ts";
import { LogUnreadable, type LogTrouble } from "../../../core/log-unreadable.ts";
import { lossOf, type LogFacts } from "./facts.ts";
import type { LogNames } from "./names.ts";
import { columnsRead } from "./relation.ts";

/** SQLSTATEs that mean one thing, whatever else is true. */
const plain: readonly (readonly [states: RegExp, trouble: LogTrouble])[] = [
  [/^(28|42501|3D000)/, "rights"],
  [/^(55006|42710)$/, "in use"],
  [/^(53300|53400)$/, "full"],
];

/**
 * What a failure means. Many have one SQLSTATE and are told apart only by a message in the server's language, so the server is asked how
 * things stand. A server that cannot be asked is a link that broke. Without `ask`, there is no link yet.
 */
export async function explainLog(
  error: unknown,
  place: string,
  names: LogNames,
  ask: (() => Promise<LogFacts>) | null,
  what: Needed,
): Promise<LogUnreadable> {
  if (error instanceof LogUnreadable) return error;
  const state =
    causesOf(error)
      .map(sqlStateOf)
      .find((found) => found !== null) ?? null;
  const { message: why } = asError(error);
  const known = plain.find(([states]) => state !== null && states.test(state))?.[1];
  const told = (trouble: LogTrouble, message: string): LogUnreadable =>
    new LogUnreadable(trouble, `${place}: ${message}`, { cause: error });
  if (known === "in use") return told(known, `another process uses the slot ${names.name}: ${why}`);
  if (known === "rights") return told(known, `this role may not read the log: ${why}`);
  if (known === "full") return told(known, `no connection or slot is free for the log (max_wal_senders, max_replication_slots): ${why}`);
  const facts = ask === null ? null : await ask().catch(() => null);
  const found = facts === null ? null : troubleIn(facts, names, what);
  if (found !== null) return told(...found);
  // 55000: a server of version 18 or later skipped the publication; 42704: an earlier one refused.
  if (facts !== null && (state === "42704" || state === "55000"))
    return told("publication", `the publication ${names.name} was made after its slot, so the log cannot be read: drop the slot (${why})`);
  return told("link", `the log cannot be read: ${why}`);
}

type Found = readonly [trouble: LogTrouble, message: string] | null;

/** What a slot needs that is made now. */
function givenTrouble({ walLevel, publication }: LogFacts, { name }: LogNames): Found {
  if (walLevel !== "logical") return ["not logical", `wal_level is ${walLevel}, and only logical lets the log be read: it needs a restart`];
  const lack = publication === null ? "there is no such publication" : lackOf(publication);
  return lack === null ? null : ["publication", `the publication ${name} cannot be used: ${lack}`];
}

function slotTrouble({ walLevel, slot }: LogFacts, { name }: LogNames): Found {
  if (walLevel !== "logical") return null;
  if (slot === null) return ["missing", `there is no replication slot ${name}`];
  if (!slot.ours) return ["elsewhere", `the replication slot ${name} is of another plugin or database (${slot.plugin}, ${slot.database})`];
  const loss = lossOf(slot);
  return loss === null ? null : ["lost", `the replication slot ${name} is lost: ${loss}`];
}

function lackOf({ inserts, through_root: throughRoot, covers, columns }: NonNullable<LogFacts["publication"]>): string | null {
  if (!covers) return "it does not have the outbox, or only its partitions";
  if (!inserts) return "it does not publish inserts";
  if (!throughRoot) return "publish_via_partition_root is not set";
  const absent = columnsRead.filter((name) => columns?.includes(name) === false);
  return absent.length === 0 ? null : `it leaves out the columns ${absent.join(", ")}`;
}

/** What the work needs that the server was asked for. */
export type Needed = "a new slot" | "its slot";

/** What keeps the log from being read, as far as slot, publication and `wal_level` tell. */
export const troubleIn = (facts: LogFacts, names: LogNames, what: Needed): Found =>
  (what === "its slot" ? slotTrouble(facts, names) : null) ?? givenTrouble(facts, names);

/** Refuses to begin where the log cannot be read, or where a slot would serve nothing. */
export function refuseUnreadable(facts: LogFacts, place: string, names: LogNames, what: Needed): void {
  const found = troubleIn(facts, names, what);
  if (found !== null) throw new LogUnreadable(found[0], `${place}: ${found[1]}`);
}
