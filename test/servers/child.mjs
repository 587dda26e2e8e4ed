// Starts servers as a test file does, tells where they are, and waits to be killed.
import { setInterval } from "node:timers";
import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

const load = async (name) => (await runnerImport(fileURLToPath(new URL(name, import.meta.url)), { configFile: false })).module;

const { startPostgres } = await load("./postgres.ts");
const { startMariadb } = await load("./mariadb.ts");
console.log("ready to start");
const servers = await Promise.all([startPostgres({ version: 15 }), startMariadb()]);
console.log(JSON.stringify(servers.map(({ folder, pid }) => ({ folder, pid }))));
setInterval(() => {}, 60_000);
