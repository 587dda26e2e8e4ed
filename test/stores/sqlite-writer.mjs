// Adds events by plain SQL until it is told to stop, and says how many it committed.
import { setTimeout } from "node:timers/promises";
import { defaultDriver } from "../../dist/drivers/sqlite/driver.js";

const db = (await defaultDriver())(process.argv[2]);
db.exec("PRAGMA busy_timeout = 20000");
let stop = false;
process.on("message", () => (stop = true));
let added = 0;
const insert = db.prepare("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', ?, 'Added', ?)");
while (!stop) {
  for (let n = 0; n < 20; n++) insert.run(`order-${added % 50}`, String(added++));
  process.send(added);
  await setTimeout(1);
}
db.close();
process.send("closed", () => process.disconnect());
