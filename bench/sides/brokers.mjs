// The broker of a round, through the package's adapter.
import { from } from "./package.mjs";

export const topicOf = (task) => `${task.schema}.events`;

export async function openBroker(task) {
  if (task.broker === "none") return none();
  const { [task.broker]: open } = await from(task.root, `brokers/${task.broker}/index.js`);
  const broker = open(task.broker === "embedded" ? { path: `${task.brokerUrl}/${task.schema}.broker.db` } : { url: task.brokerUrl });
  await broker.provision([topicOf(task)], ["bench"]);
  return broker;
}

/** Acknowledges at once, so that only the cost of the database and of the relay itself is left. */
function none() {
  return {
    name: "none",
    can: { maxBytes: 2 ** 30 },
    connect: async () => undefined,
    probe: async () => undefined,
    publish: async (batch) => batch.map(() => ({ status: "stored" })),
    [Symbol.asyncDispose]: async () => undefined,
  };
}
