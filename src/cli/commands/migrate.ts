import { WaybillError } from "../../core/errors.ts";
import { settings } from "../config.ts";
import { command, flag } from "../parse.ts";
import { brokerFlag, brokerOf, storeFlag, storeOf } from "./shared.ts";

export const migrate = command({
  name: "migrate",
  summary: "Creates or upgrades the tables, and topics where a broker is given. Safe to repeat.",
  flags: {
    ...storeFlag,
    ...brokerFlag,
    topics: flag.value("A,B", "topics to create on the broker", settings.topics),
    print: flag.switch("only print the statements"),
  },
  examples: [
    "waybill migrate --store sqlite:./app.db",
    "waybill migrate --store sqlite:./app.db --broker embedded:./broker.db --topics order.events,user.events",
  ],
  async run(terminal, values) {
    const topics = values.topics ?? terminal.config.topics ?? [];
    const withBroker = (values.broker ?? terminal.config.broker) !== undefined;
    if (values.topics !== undefined && !withBroker) throw new WaybillError("USAGE", "--topics needs --broker URL, where they are created");
    await using opened = await storeOf(terminal, values, true);
    if (values.print) {
      const statements = opened.store.schema.print();
      return terminal.out.answer({ statements }, () => statements.trimEnd());
    }
    await using broker = withBroker ? brokerOf(terminal, values) : null;
    const applied = await opened.store.schema.migrate();
    await broker?.provision(topics);
    terminal.out.answer({ applied, topics: broker === null ? [] : topics }, () => {
      const tables = applied.length === 0 ? "The tables are up to date." : `The tables are at version ${applied.at(-1)!} now.`;
      return broker === null || topics.length === 0 ? tables : `${tables}\nThe broker has ${topics.join(", ")}.`;
    });
  },
});
