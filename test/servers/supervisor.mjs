// Runs one server for the process that holds our standard input, in a session of its own. When that process ends, however it ends, our
// input closes: the server is killed and its folder removed. Orders come as lines of JSON, and so go the answers.
import { execFileSync, spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const { folder, log, env, account, lastSignal } = JSON.parse(process.argv[2]);
const patienceMs = 8_000;

/** What runs: the server, or a program that prepares its folder. */
let running = null;

const answer = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
// The reader may be gone already.
process.stdout.on("error", () => {});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => void finish());

function start([command, ...args], end) {
  const out = openSync(log, "a");
  const child = spawn(command, args, { cwd: folder, env, ...account, stdio: ["ignore", out, out] });
  closeSync(out);
  const exited = new Promise((resolve) => {
    child.once("error", (error) => resolve({ ended: error.message }));
    child.once("exit", (code, signal) => resolve({ ended: signal ?? code }));
  });
  const started = { pid: child.pid, end, all: [] };
  started.ended = exited.then(async (message) => {
    while (started.all.some(lives)) await sleep(2);
    running = null;
    answer(message);
  });
  running = started;
  if (child.pid !== undefined) answer({ started: child.pid });
}

const statOf = (pid) => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return null; // it has ended
  }
};

const lives = (pid) => !["Z", "X", undefined].includes(statOf(pid)?.[0]);

/** The processes below this one: servers put them into sessions of their own, so no group holds them all. */
function descendants(pid) {
  const parents = readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? [[Number(name), Number(statOf(name)?.[1])]] : []));
  const below = (of) => parents.flatMap(([child, parent]) => (parent === of ? [child, ...below(child)] : []));
  return below(pid);
}

/** The whole server at one blow, as when its machine is lost: all are stopped first, so that none forks or tidies up meanwhile. */
function killAll(what) {
  const stopped = new Set();
  for (let more = [what.pid]; more.length > 0; more = descendants(what.pid).filter((pid) => !stopped.has(pid))) {
    for (const pid of more) {
      kill(pid, "SIGSTOP");
      stopped.add(pid);
    }
  }
  what.all = [...stopped];
  for (const pid of what.all) kill(pid, "SIGKILL");
}

function end(what, signal) {
  if (signal === "SIGKILL") killAll(what);
  else kill(what.pid, signal);
}

function kill(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // It ended before.
  }
}

/** PostgreSQL that was killed leaves a System V segment; the file that names it is there only then. */
function removeSegment() {
  const file = join(folder, "data", "postmaster.pid");
  if (!existsSync(file)) return;
  const segment = readFileSync(file, "utf8").split("\n")[6]?.trim().split(/\s+/)[1];
  if (segment === undefined) return;
  try {
    execFileSync("ipcrm", ["-m", segment], { stdio: "ignore" });
  } catch {
    // It is gone already.
  }
}

let finishing = false;
async function finish() {
  if (finishing) return;
  finishing = true;
  if (running !== null) {
    const last = running;
    // A program that prepares the folder ends soon by itself, and tidies up better than we could.
    if (last.end !== null) end(last, last.end);
    await Promise.race([last.ended, sleep(patienceMs)]);
    if (running !== null) {
      killAll(last);
      await last.ended;
    }
  }
  removeSegment();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  process.exit(0);
}

createInterface({ input: process.stdin })
  .on("line", (line) => {
    if (finishing) return;
    const order = JSON.parse(line);
    if (order.run !== undefined) start(order.run, null);
    else if (order.start !== undefined) start(order.start, lastSignal);
    else if (running === null) answer({ ended: "it does not run" });
    else end(running, order.end);
  })
  .on("close", () => void finish());
