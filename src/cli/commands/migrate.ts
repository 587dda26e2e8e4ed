import { command, flag } from "../parse.ts";
import { brokerFlag, brokerPlace, storeFlag, storePlace } from "../places.ts";
import { names } from "../read.ts";
import { brokerOf, storeOf } from "./shared.ts";
import { usage } from "../usage.ts";

export const migrate = command({
  name: "migrate",
  summary: "Creates or upgrades the tables, and topics where a broker is given. Safe to repeat.",
  flags: {
    ...storeFlag,
    ...brokerFlag,
    topics: flag.value("A,B", "topics to create on the broker", names),
    consumers: flag.value("A,B", "consumers to make a place for in these topics, where the broker needs one", names),
    print: flag.switch("only print the statements, for a migration tool: without BEGIN and COMMIT"),
    grants: flag.switch("with --print: the rights that each role needs, instead of the tables"),
  },
  examples: [
    "waybill migrate --store sqlite:./app.db",
    "waybill migrate --store postgres://user@host/shop --print > migrations/0007_waybill.sql",
    "waybill migrate --store sqlite:./app.db --broker embedded:./broker.db --topics order.events,user.events",
  ],
  async run(terminal, values) {
    const topics = values.topics ?? terminal.config.topics ?? [];
    const withBroker = brokerPlace(terminal, values) !== undefined;
    if (values.topics !== undefined && !withBroker) usage("--topics needs --broker URL, where they are created");
    if (values.consumers !== undefined && topics.length === 0) usage("--consumers needs --topics, which they read");
    if (values.grants && !values.print) usage("--grants needs --print: Waybill prints the grants, and an administrator runs them");
    const withStore = storePlace(terminal, values) !== undefined;
    // A broker alone is enough to create topics, as errors about a missing topic advise. --print always needs the store.
    await using opened = withStore || !withBroker || values.print ? await storeOf(terminal, values, true) : null;
    if (opened !== null && values.print) {
      const { schema } = opened.store;
      const statements = values.grants ? schema.grants() : schema.print();
      if (statements === "")
        usage("--grants is for a database with roles, and this one has none: who can write to the file can do everything");
      return terminal.out.answer({ statements }, () => statements.trimEnd().split("\n"));
    }
    if (opened === null && topics.length === 0) usage("without a store, --topics A,B says what to create on the broker");
    await using broker = withBroker ? await brokerOf(terminal, values) : null;
    const applied = opened === null ? [] : await opened.store.schema.migrate();
    await broker?.provision(topics, values.consumers ?? []);
    terminal.out.answer({ applied, topics: broker === null ? [] : topics }, () => {
      if (opened === null) return [`The broker has ${topics.join(", ")}.`];
      const tables = applied.length === 0 ? "The tables are up to date." : `The tables are at version ${applied.at(-1)!} now.`;
      return broker === null || topics.length === 0 ? [tables] : [tables, `The broker has ${topics.join(", ")}.`];
    });
  },
});
