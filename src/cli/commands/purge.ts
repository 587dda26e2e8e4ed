import { systemClock } from "../../core/clock.ts";
import { count } from "../../core/text.ts";
import { never } from "../../core/time.ts";
import { pauses, purgeStore } from "../../relay/housekeeping/purge.ts";
import { duration } from "../duration.ts";
import { command, flag } from "../parse.ts";
import { asked, brokerFlag, storeFlag } from "../places.ts";
import { names } from "../read.ts";
import { asFlag, brokerOf, given, storeOf, who } from "./shared.ts";
import { usage } from "../usage.ts";

const hundredYears = 100 * 365 * 86_400_000;

export const purge = command({
  name: "purge",
  summary: "Deletes published and discarded events that are older than this; never any other.",
  flags: {
    ...storeFlag,
    "older-than": flag.value("TIME", "such as 7d or 12h", duration(0, hundredYears)),
    ...brokerFlag,
    broker: flag.text("URL", "delete messages of this age from this broker too"),
    topics: flag.value("A,B", "topics to delete them from, where the broker must be told", names),
    "dry-run": flag.switch("only say what would be deleted from the store"),
    ...asFlag,
  },
  examples: ["waybill purge --store sqlite:./app.db --older-than 7d", "waybill purge --store sqlite:./app.db --older-than 7d --dry-run"],
  async run(terminal, values) {
    const ageMs = values["older-than"];
    const dryRun = values["dry-run"];
    if (ageMs === undefined) usage("waybill purge needs --older-than TIME, such as 7d");
    // Only when this command line names it: a broker in the environment or the configuration is not a request to delete from it.
    const withBroker = asked("broker", values) !== undefined;
    if (values.topics !== undefined && !withBroker) usage("--topics needs --broker URL, whose messages are deleted");
    const before = new Date(systemClock.now() - ageMs);
    await using opened = await storeOf(terminal, values);
    await using broker = !withBroker ? null : await brokerOf(terminal, values, false);
    const { archive, keyRetention: keyRetentionMs } = terminal.config;
    const by = { who: who(values), dryRun };
    const { events, kept, ...partitions } = await purgeStore(opened.store, before, by, {
      ...given({ archive, keyRetentionMs }),
      pause: pauses(systemClock, never),
    });
    const messages = broker === null || dryRun ? null : await broker.purge(before, values.topics ?? []);
    terminal.out.answer({ before, dryRun, events, ...partitions, kept, messages }, () => {
      const stored = `${dryRun ? "Would delete" : "Deleted"} ${count(events, "event")} from before ${before.toISOString()}.`;
      const { dropped, moved, undone } = partitions;
      return [
        stored,
        ...(dropped.length === 0 ? [] : [`Dropped ${dropped.join(", ")}, out of which ${count(moved, "event")} moved.`]),
        ...[...undone, ...kept].map((why) => `Not done: ${why}.`),
        ...(messages === null ? [] : [`Deleted ${count(messages, "message")} from the broker.`]),
      ];
    });
  },
});
