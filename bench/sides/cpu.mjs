// CPU time, in microseconds, and memory: of this process, and of any other with its descendants.
import { readdirSync, readFileSync } from "node:fs";

/** The kernel counts in hundredths of a second on every Linux that Node runs on. */
const tickMicros = 10_000;
const pageBytes = 4_096;

export function ownCpu() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/** CPU of a process and its descendants, including those that have ended; 0 if there is no such process. */
export function treeCpu(pid) {
  return tree(pid).reduce((sum, { own, ended }) => sum + own + ended, 0);
}

/** Resident memory of a process and its descendants, in bytes. Shared memory is counted for each of them. */
export function treeRss(pid) {
  return tree(pid).reduce((sum, { pages }) => sum + pages, 0) * pageBytes;
}

function tree(pid) {
  const all = readdirSync("/proc").flatMap((name) => (/^\d+$/.test(name) ? (statOf(Number(name)) ?? []) : []));
  const below = (parent) => all.filter((each) => each.parent === parent).flatMap((each) => [each, ...below(each.pid)]);
  return [...all.filter((each) => each.pid === pid), ...below(pid)];
}

/** The program's name, in parentheses, may contain spaces: the fields are counted from behind it. */
function statOf(pid) {
  let text;
  try {
    text = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return null; // the process has ended meanwhile
  }
  const behind = text.slice(text.lastIndexOf(")") + 2);
  const fields = behind.split(" ").map(Number);
  const [ticks, endedTicks, threads] = [fields[11] + fields[12], fields[13] + fields[14], fields[17]];
  const own = threads === 1 ? (exactOf(pid) ?? ticks * tickMicros) : ticks * tickMicros;
  return { pid, parent: fields[1], own, ended: endedTicks * tickMicros, pages: fields[21] };
}

/** From the scheduler's own count in nanoseconds. Ticks would lose up to one for each of a database's many processes. */
function exactOf(pid) {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[0]) / 1_000;
  } catch {
    return null;
  }
}
