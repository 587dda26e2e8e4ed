import type { LogLook } from "../../../contracts/log-tailer.ts";
import type { Rule } from "../../../core/finding.ts";
import { inBytes } from "../../../core/text.ts";
import { behindInWords, standingInWords } from "../../kit/log-words.ts";
import type { LogAnswers } from "./answers.ts";
import { troubleIn } from "./trouble.ts";

const polls = "Relays poll meanwhile";
/** Of what a relay checks before it starts. */
const refuses = "Until then relays poll, and --mode tail refuses to start";
const print = "waybill tail setup --print shows what an administrator has to run";

/** Looked at where a slot of this outbox exists, or the configuration asks for mode tail or auto. Most of them break no promise: relays poll. */
export const logRules: readonly Rule<LogAnswers>[] = [
  {
    setting: "wal_level",
    badWhen: "never; unknown when it is not `logical`: relays poll",
    breaks: "",
    remedy: "set `wal_level = logical` and restart the server",
    look({ facts: { walLevel } }, { good, unknown }) {
      if (walLevel === "logical") return good(walLevel, "The log can be read.");
      return unknown(walLevel, `Only logical lets the log be read. ${refuses}: set wal_level = logical and restart the server.`);
    },
  },
  {
    setting: "connection to the log",
    badWhen: "never; unknown when the server takes none from this role, or a pooler answers",
    breaks: "",
    remedy: "`ALTER ROLE … REPLICATION`, a line in `pg_hba.conf`, or `--log-url` with the address of the server itself",
    look({ refusal }, { good, unknown }) {
      if (refusal === null) return good("open", "This role may read the log, at this address.");
      const remedy =
        refusal.trouble === "rights"
          ? print
          : refusal.trouble === "full"
            ? "raise max_wal_senders"
            : "if a pooler such as PgBouncer answers at this address, name the server itself with --log-url";
      return unknown(refusal.trouble, `${refusal.message}. ${refuses}: ${remedy}.`);
    },
  },
  {
    setting: "publication",
    badWhen: "never; unknown when it does not fit, or is missing and this role may not create it",
    breaks: "",
    remedy: "`waybill tail drop` and `waybill tail setup`, or what `waybill tail setup --print` shows",
    look({ facts, names, mayPublish }, { good, unknown }) {
      if (facts.publication === null)
        return mayPublish
          ? good("none yet", "A relay creates it when it begins to read the log.")
          : unknown("none", `This role may not create the publication ${names.name}. ${polls}: ${print}.`);
      const found = troubleIn({ ...facts, walLevel: "logical" }, names, "a new slot");
      if (found === null) return good(names.name, "It has the outbox, with every column that a relay reads.");
      return unknown(names.name, `${sentence(found[1])}. ${refuses}: waybill tail drop removes it, and a relay creates it anew.`);
    },
  },
  {
    setting: "replication slot",
    badWhen: "never; unknown when it is lost, lags or is read by no process, and when there is no place for it",
    breaks: "",
    remedy: "`waybill tail status` says more; `waybill tail resync` makes it anew",
    look({ look, names, facts: { slot }, slots, settings: { max_replication_slots: most } }, { good, unknown }) {
      if (slot === null)
        return slots < Number(most)
          ? good("none yet", "A relay makes it when it begins to read the log.")
          : unknown("none", `All ${most} slots of the server are taken (max_replication_slots). ${polls}: raise it, or drop a slot.`);
      const sizes = `${behindInWords(look)} behind, ${inBytes(look.retainedBytes)} kept`;
      const value = `${names.name}: ${standingInWords(look)}`;
      if (look.state === "streaming") return good(value, `A process reads the log (${sizes}).`);
      return unknown(value, adviceOn(look.state, sizes));
    },
  },
  {
    setting: "max_wal_senders",
    badWhen: "never; unknown when all are taken and none of them reads our slot",
    breaks: "",
    remedy: "raise it",
    look({ senders, facts: { slot }, settings: { max_wal_senders: most } }, { good, unknown }) {
      const value = `${senders} of ${most} in use`;
      if (slot?.active === true || senders < Number(most)) return good(value, "There is one for a relay.");
      return unknown(value, `No sender is free for a relay. ${polls}: raise max_wal_senders.`);
    },
  },
  {
    setting: "max_slot_wal_keep_size",
    badWhen: "never; unknown when it is -1: a slot that no process reads fills the disk",
    breaks: "",
    remedy: "set it to what the disk can spare: a relay whose slot is lost polls, and makes a new one",
    look({ settings: { max_slot_wal_keep_size: is } }, { good, unknown }) {
      if (is !== "-1") return good(`${is} MB`, "A slot that no process reads is given up before it fills the disk.");
      return unknown(
        is,
        "While no relay runs, the server keeps its log for the slot until the disk is full, and then it stops: set it to what the disk can spare. A relay whose slot is lost polls, and makes a new one.",
      );
    },
  },
  {
    setting: "synchronous_standby_names for the log",
    badWhen: "`*`: a relay that reads the log counts as a standby",
    breaks: "L",
    remedy: "name the standbys in `synchronous_standby_names`",
    look({ settings: { synchronous_standby_names: names } }, { bad }) {
      if (!/(^|[\s,(])"?\*"?($|[\s,)])/.test(names)) return [];
      return bad(
        names,
        "A relay that reads the log counts as a standby: a commit may wait for the relay and not for the standby, which lacks it when it is promoted",
      );
    },
  },
];

const sentence = (text: string): string => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

function adviceOn(state: LogLook["state"], sizes: string): string {
  if (state === "unread")
    return `The server keeps its log for it (${sizes}): start a relay with --mode tail, or let waybill tail drop remove it.`;
  if (state === "lost") return `${polls}. One in mode tail or auto makes a new slot by itself: waybill tail resync does it now.`;
  if (state === "lagging") return `The reader does not keep up (${sizes}): look at the relay's log, and at its broker.`;
  return `The log cannot be read yet (${sizes}).`;
}
