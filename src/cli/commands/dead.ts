import type { ActionReport, DeadFilter } from "../../contracts/operator.ts";
import { WaybillError } from "../../core/errors.ts";
import { count, shorten } from "../../core/text.ts";
import { paragraphs, table } from "../output.ts";
import { command, flag, type Command } from "../parse.ts";
import { storeFlag } from "../places.ts";
import { eventPage, eventTable, pageFlags, shownEvent } from "./events.ts";
import { asFlag, given, storeOf, who } from "./shared.ts";
import { usage } from "../usage.ts";

const list = command({
  name: "dead list",
  summary: "Lists dead events: how many by error, then the newest.",
  flags: { ...storeFlag, ...pageFlags },
  examples: ["waybill dead list --store sqlite:./app.db"],
  async run(terminal, values) {
    await using opened = await storeOf(terminal, values);
    const { operator } = opened.store;
    const { dead: groups } = await operator.status();
    const events = await operator.list({ state: "DEAD", limit: values.limit ?? 20, ...given({ beforeSeq: values["before-seq"] }) });
    terminal.out.answer({ groups, events }, () => {
      if (groups.length === 0) return ["No dead events."];
      const rows = groups.map((group) => [group.events, group.oldest, shorten(group.error, 120)]);
      return paragraphs([table(terminal.out, ["dead", "oldest", "error"], rows), eventTable(terminal.out, events)]);
    });
  },
});

const show = command({
  name: "dead show",
  summary: "Shows one dead event with its payload, and how many events wait behind it.",
  words: { shown: "ID", least: 1, most: 1 },
  flags: storeFlag,
  examples: ["waybill dead show 01890a5d-ac96-774b-bcce-b302099a8057 --store sqlite:./app.db"],
  async run(terminal, values, [id]) {
    await using opened = await storeOf(terminal, values);
    const { operator } = opened.store;
    const event = shownEvent(await operator.show(id!), id!);
    if (event.state !== "DEAD") throw new WaybillError("WRONG_STATE", `event ${event.id} is ${event.state}, not DEAD`);
    const { followers } = await operator.redrive({ ids: [event.id] }, { who: "", dryRun: true });
    terminal.out.answer({ ...event, followers }, () => paragraphs([eventPage(terminal.out, event), [`${behind(followers)}.`]]));
  },
});

const redrive = action({
  verb: "redrive",
  summary: "Lets dead events go again, attempts starting anew, each before its blocked followers.",
  done: (report) => `${count(report.events, "event")} will be published again, before ${count(report.followers, "blocked follower")}.`,
});

const discard = action({
  verb: "discard",
  summary: "Gives dead events up; they stay as DISCARDED, and their followers are released in order.",
  done: (report) => `${count(report.events, "event")} given up, ${count(report.followers, "blocked follower")} released in order.`,
});

export const dead = [list, show, redrive, discard];

interface ActionWords {
  readonly verb: "redrive" | "discard";
  readonly summary: string;
  readonly done: (report: ActionReport) => string;
}

/** Named events are acted on at once; whatever matches a filter only after a look and `--yes`. */
function action({ verb, summary, done }: ActionWords): Command {
  return command({
    name: `dead ${verb}`,
    summary: `${summary} With --all or a filter it only says what would happen, until --yes.`,
    words: { shown: "[ID…]", least: 0, most: 10_000 },
    flags: {
      ...storeFlag,
      all: flag.switch("every dead event"),
      "aggregate-type": flag.text("T", "dead events of this aggregate type"),
      "aggregate-id": flag.text("I", "dead events of this aggregate id"),
      type: flag.text("E", "dead events of this type"),
      error: flag.text("TEXT", "dead events with exactly this error, as dead list shows it"),
      yes: flag.switch("do it"),
      "dry-run": flag.switch("only say what would happen"),
      ...asFlag,
    },
    examples: [
      `waybill dead ${verb} 01890a5d-ac96-774b-bcce-b302099a8057 --store sqlite:./app.db`,
      `waybill dead ${verb} --aggregate-type Order --store sqlite:./app.db --yes`,
    ],
    async run(terminal, values, ids) {
      const filter: DeadFilter = {
        ...(ids.length === 0 ? {} : { ids: [...new Set(ids)] }),
        ...given({ aggregateType: values["aggregate-type"], aggregateId: values["aggregate-id"], type: values.type, error: values.error }),
      };
      const filters = Object.keys(filter).filter((key) => key !== "ids").length;
      if (ids.length === 0 && filters === 0 && !values.all) usage(`waybill dead ${verb} needs ids, a filter, or --all`);
      if (ids.length > 0 && (filters > 0 || values.all)) usage(`waybill dead ${verb} takes ids, or --all and filters, not both`);
      if (values.all && filters > 0) usage("--all means every dead event: leave it out, or the filters");
      const dryRun = values["dry-run"] || (ids.length === 0 && !values.yes);
      await using opened = await storeOf(terminal, values);
      const report = await opened.store.operator[verb](filter, { who: who(values), dryRun });
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
