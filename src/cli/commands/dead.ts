import type { ConsumerState } from "../../contracts/consumers.ts";
import type { ActionReport, DeadFilter } from "../../contracts/operator.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { count, shorten } from "../../core/text.ts";
import type { CommandStore } from "../open.ts";
import { paragraphs, table } from "../output.ts";
import { command, flag, type Command } from "../parse.ts";
import { storeFlag } from "../places.ts";
import { asIs } from "../read.ts";
import { eventPage, eventTable, pageFlags, shownEvent } from "./events.ts";
import {
  actedOnLetters,
  actOnLetters,
  letterFlags,
  letterList,
  letterPage,
  lettersMeant,
  lettersOf,
  rateFlag,
  refuseLetters,
} from "./letters.ts";
import { asFlag, given, storeOf, who } from "./shared.ts";
import { usage } from "../usage.ts";

/** The lengths to which lists cut an error. */
const listedLengths = [60, 100, 120];

const filterFlags = {
  "aggregate-type": flag.text("T", "only those of this aggregate type"),
  "aggregate-id": flag.text("I", "only those of this aggregate id"),
  type: flag.text("E", "only those of this event type"),
  // An error that dead list cut short is matched by its shown part. The same character stands for an id within an error, and stays there.
  error: flag.value("TEXT", "only those whose error begins so: a code, or as much of it as dead list shows", (text, refuse) =>
    asIs(listedLengths.includes(text.length) ? text.replace(/…$/, "") : text, refuse),
  ),
};

interface Filters {
  readonly "aggregate-type": string | undefined;
  readonly "aggregate-id": string | undefined;
  readonly type: string | undefined;
  readonly error: string | undefined;
}

const filterOf = (values: Filters): Omit<DeadFilter, "ids"> =>
  given({ aggregateType: values["aggregate-type"], aggregateId: values["aggregate-id"], type: values.type, error: values.error });

const id = "01890a5d-ac96-774b-bcce-b302099a8057";

const list = command({
  name: "dead list",
  summary: "Lists dead events, or a consumer's letters: how many by error, then the newest.",
  flags: { ...storeFlag, ...letterFlags, ...filterFlags, ...pageFlags },
  examples: ["waybill dead list --store sqlite:./app.db", "waybill dead list --consumer shipping --store sqlite:./app.db"],
  async run(terminal, values) {
    const meant = await lettersMeant(terminal, values);
    await using opened = await storeOf(terminal, values);
    const { operator, letters } = opened.store;
    const page = { limit: values.limit ?? 20, ...given({ beforeSeq: values["before-seq"] }) };
    const filter = filterOf(values);
    if (meant !== null) {
      const groups = await letters.groups({ ...meant, ...filter });
      const found = await letters.list({ ...meant, ...filter, ...page });
      const [of] = await looked(opened, meant.consumer!);
      return terminal.out.answer({ groups, letters: found, retrying: of?.retrying ?? null }, () =>
        letterList(terminal.out, groups, found, of),
      );
    }
    const { dead } = await operator.status();
    const groups = dead.filter(({ error }) => error.startsWith(filter.error ?? ""));
    const events = await operator.list({ state: "DEAD", ...filter, ...page });
    terminal.out.answer({ groups, events }, () => {
      if (groups.length === 0) return ["No dead events."];
      const rows = groups.map((group) => [group.events, group.oldest, shorten(group.error, 120), group.example]);
      return paragraphs([table(terminal.out, ["dead", "oldest", "error", "example"], rows), eventTable(terminal.out, events)]);
    });
  },
});

/** A role that may read letters need not be allowed to read marks and attempts. */
async function looked({ store }: CommandStore, consumer: string): Promise<readonly ConsumerState[]> {
  return store.consumers.look(consumer).catch((error: unknown) => {
    if (isWaybillError(error, "STORE_READ_ONLY")) return [];
    throw error;
  });
}

const show = command({
  name: "dead show",
  summary: "Shows one dead event with its payload and how many events wait behind it, or a consumer's letter of that event.",
  words: { shown: "ID", least: 1, most: 1 },
  flags: { ...storeFlag, ...letterFlags },
  examples: [`waybill dead show ${id} --store sqlite:./app.db`, `waybill dead show ${id} --consumer shipping --store sqlite:./app.db`],
  async run(terminal, values, [asked]) {
    const meant = await lettersMeant(terminal, values);
    await using opened = await storeOf(terminal, values);
    const { operator } = opened.store;
    if (meant !== null) {
      const letters = await lettersOf(opened, meant, asked!);
      return terminal.out.answer({ letters }, () => paragraphs(letters.map((letter) => letterPage(terminal.out, letter))));
    }
    const found = await operator.show(asked!);
    if (found?.state !== "DEAD") await refuseLetters(opened, asked!);
    const event = shownEvent(found, asked!);
    if (event.state !== "DEAD") throw new WaybillError("WRONG_STATE", `event ${event.id} is ${event.state}, not DEAD`);
    const { followers } = await operator.redrive({ ids: [event.id] }, { who: "", dryRun: true });
    terminal.out.answer({ ...event, followers }, () => paragraphs([eventPage(terminal.out, event), [`${behind(followers)}.`]]));
  },
});

const redrive = action({
  verb: "redrive",
  summary:
    "Lets dead events go again, attempts starting anew, each before its blocked followers; or gives letters to their consumer again.",
  done: (report) => `${count(report.events, "event")} will be published again, before ${count(report.followers, "blocked follower")}.`,
});

const discard = action({
  verb: "discard",
  summary: "Gives dead events up: they stay as DISCARDED, and their followers are released in order. Or deletes a consumer's letters.",
  done: (report) => `${count(report.events, "event")} given up, ${count(report.followers, "blocked follower")} released in order.`,
});

export const dead = [list, show, redrive, discard];

interface ActionWords {
  readonly verb: "redrive" | "discard";
  readonly summary: string;
  readonly done: (report: ActionReport) => string;
}

/** Named events are acted on at once. A filter needs a look at what it matches first, and then `--yes`. */
function action({ verb, summary, done }: ActionWords): Command {
  return command({
    name: `dead ${verb}`,
    summary: `${summary} With --all or a filter it only says what would happen, until --yes.`,
    words: { shown: "[ID…]", least: 0, most: 10_000 },
    flags: {
      ...storeFlag,
      ...letterFlags,
      all: flag.switch("every dead event, or every letter of the consumer"),
      ...filterFlags,
      ...rateFlag,
      yes: flag.switch("do it"),
      "dry-run": flag.switch("only say what would happen"),
      ...asFlag,
    },
    examples: [
      `waybill dead ${verb} ${id} --store sqlite:./app.db`,
      `waybill dead ${verb} --aggregate-type Order --store sqlite:./app.db --yes`,
      `waybill dead ${verb} --consumer shipping --error NO_ACCOUNT --store sqlite:./app.db --yes`,
    ],
    async run(terminal, values, ids) {
      const named = ids.length === 0 ? {} : { ids: [...new Set(ids)] };
      const filter = filterOf(values);
      const filters = Object.keys(filter).length;
      if (ids.length === 0 && filters === 0 && !values.all) usage(`waybill dead ${verb} needs ids, a filter, or --all`);
      if (ids.length > 0 && (filters > 0 || values.all)) usage(`waybill dead ${verb} takes ids, or --all and filters, not both`);
      if (values.all && filters > 0) usage("--all means every one: leave it out, or the filters");
      const dryRun = values["dry-run"] || (ids.length === 0 && !values.yes);
      const meant = await lettersMeant(terminal, values);
      if (verb === "discard" && values.rate !== undefined) usage("--rate is for a redrive: a discard waits for no subscriber");
      if (meant === null && values.rate !== undefined)
        usage("--rate goes with --consumer: dead events are published at the relay's own pace");
      await using opened = await storeOf(terminal, values);
      if (meant !== null) {
        const act = { verb, filter: { ...meant, ...filter, ...named }, who: who(values), dryRun, rate: values.rate };
        const letters = await actOnLetters(terminal, opened, act);
        return terminal.out.answer({ action: verb, dryRun, ...letters }, () => actedOnLetters(act, letters, values["dry-run"]));
      }
      const report = await opened.store.operator[verb]({ ...filter, ...named }, { who: who(values), dryRun });
      terminal.out.answer({ action: verb, dryRun, ...report }, () => {
        if (report.events === 0) return ["No dead event matches."];
        if (!dryRun) return [done(report)];
        const more = report.ids.length > 20 ? [`… and ${report.ids.length - 20} more`] : [];
        return [
          `Would ${verb} ${count(report.events, "event")}; ${behind(report.followers)}.`,
          ...report.ids.slice(0, 20),
          ...more,
          `Nothing was changed.${values["dry-run"] ? "" : " --yes does it."}`,
        ];
      });
    },
  });
}

const behind = (followers: number): string => `${count(followers, "event is", "events are")} BLOCKED behind`;
