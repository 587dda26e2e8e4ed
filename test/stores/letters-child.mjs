// A subscriber of letters until it is killed: the table effects gets a row for each event that it applies.
import process from "node:process";
import { embedded } from "../../dist/brokers/embedded/index.js";
import { createSubscriber } from "../../dist/index.js";
import { mysql } from "../../dist/stores/mysql/index.js";
import { postgres } from "../../dist/stores/postgres/index.js";

const [, , url, path] = process.argv;
const isPostgres = url.startsWith("postgres:");
process.stdin.on("close", () => process.exit(1)).resume(); // the test is gone
const subscriber = createSubscriber({
  ...{ consumer: "shipping", source: embedded({ path }), topics: ["order.events"], seatMs: 1_500 },
  inbox: isPostgres ? postgres({ url }) : mysql({ url }),
  handlers: { "*": ({ id }, tx) => tx.query(`INSERT INTO effects (id) VALUES (${isPostgres ? "$1" : "?"})`, [id]) },
});
await subscriber.start();
console.log("runs");
