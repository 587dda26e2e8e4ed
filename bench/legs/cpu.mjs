// CPU time, in microseconds: of this process, and of a server with all its processes.
import { readdirSync, readFileSync } from "node:fs";

/** The kernel counts in hundredths of a second on every Linux that Node runs on. */
const tickMicros = 10_000;

export function ownCpu() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/** Of the process and of its children, also of those that have ended. */
export function serverCpu(pid) {
  let ticks = 0;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = statOf(name);
    if (stat === null) continue;
    if (Number(name) === pid) ticks += stat.own + stat.ended;
    else if (stat.parent === pid) ticks += stat.own;
  }
  return ticks * tickMicros;
}

/** The name of the program, in brackets, may hold spaces: what is counted comes behind it. */
function statOf(pid) {
  let text;
  try {
    text = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null; // it has ended meanwhile
  }
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  const sum = (...at) => at.reduce((total, i) => total + Number(fields[i]), 0);
  return { parent: Number(fields[1]), own: sum(11, 12), ended: sum(13, 14) };
}
