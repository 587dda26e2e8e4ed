import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createWorkers, type WorkerDuty, type Workers } from "../../src/proof/run/workers.ts";
import { systemClock as clock } from "../../src/core/clock.ts";
import { asError } from "../../src/core/errors.ts";

let folder: string;
let workers: Workers;
/** Workers that do this when they get their task. */
function workersThat(does: string, signal = new AbortController().signal): Workers {
  const program = join(folder, "worker.mjs");
  writeFileSync(program, `process.once("message", () => { ${does} });\n`);
  return (workers = createWorkers({ program, folder, clock, signal }));
}
const duty = {} as WorkerDuty;

/** Meanwhile no process can be spawned. */
async function withoutNode(work: () => Promise<unknown>): Promise<void> {
  const { execPath } = process;
  process.execPath = join(folder, "none");
  try {
    await work();
  } finally {
    process.execPath = execPath;
  }
}

beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-workers-"))));
afterEach(async () => {
  await workers[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const failing = (early: boolean): string =>
  `process.send(${JSON.stringify({ type: "failed", code: null, message: "no space left on device", early })}, () => process.exit(1))`;

test.for([
  [false, 1],
  [true, 3],
] as const)("a worker that cannot begin is told of, and tried again only for want of a server (%s): %i lives", async ([early, lives]) => {
  workersThat(failing(early));
  await expect(workers.start("relay-1", duty)).rejects.toThrow("no space left on device");
  expect(workers.all).toMatchObject([{ lives }]);
});

test("a worker whose server is slow to answer at first begins in another life, and that is no death", async () => {
  const lives = join(folder, "lives");
  workersThat(`
    const { appendFileSync, readFileSync } = process.getBuiltinModule("node:fs");
    appendFileSync(${JSON.stringify(lives)}, "x");
    if (readFileSync(${JSON.stringify(lives)}).length < 3) ${failing(true)};
    else process.send({ type: "ready" });
  `);
  await workers.start("relay-1", duty);
  expect(workers.all).toMatchObject([{ lives: 3 }]);
  expect(workers.deaths).toEqual([]);
});

test("a worker that dies before it is ready is tried a few times, and then told of with where its log is", async () => {
  workersThat(`process.stderr.write("a bad heap\\n", () => process.exit(7));`);
  const failure = await workers.start("relay-1", duty).then(() => null, asError);
  expect(failure?.message).toMatch(/^relay-1 ended 3 times before it was ready \(exit 7\): see \//);
  expect(readFileSync(/see (\S+)$/.exec(failure!.message)![1]!, "utf8")).toContain("a bad heap");
  expect(workers.all).toMatchObject([{ lives: 3, pid: null }]);
});

test("a worker that falls at its failpoint before it is ready is tried again, as often as it takes", async () => {
  const lives = join(folder, "lives");
  workersThat(`
    const { appendFileSync, readFileSync } = process.getBuiltinModule("node:fs");
    appendFileSync(${JSON.stringify(lives)}, "x");
    if (readFileSync(${JSON.stringify(lives)}).length < 5) process.kill(process.pid, "SIGKILL");
    process.send({ type: "ready" });
  `);
  await workers.start("relay-1", { ...duty, failpoints: [{ at: "mid-batch", nth: 1, do: "kill" }] });
  expect(workers.all).toMatchObject([{ lives: 5, fallen: [1, 2, 3, 4] }]);
  expect(workers.deaths).toEqual([]);
});

test("a worker that cannot be spawned is told of", async () => {
  workersThat("");
  await withoutNode(() => expect(workers.start("relay-1", duty)).rejects.toThrow(/^relay-1 ended: spawn .* ENOENT/));
  expect(workers.all).toMatchObject([{ lives: 1, pid: null }]);
});

test("a worker whose next life cannot be spawned is tried again", async () => {
  workersThat(`process.send({ type: "ready" });`);
  await workers.start("relay-1", duty);
  await withoutNode(async () => {
    workers.kill("relay-1");
    await expect.poll(() => workers.deaths).toContainEqual({ worker: "relay-1", words: expect.stringContaining("ENOENT") as string });
  });
  await expect.poll(() => workers.all[0]!.pid).not.toBeNull();
});

test("nobody waits any more for a worker to be ready once the run is called off, and none begins after that", async () => {
  const off = new AbortController();
  workersThat("setInterval(() => undefined, 1_000);", off.signal);
  const starting = workers.start("relay-1", duty).catch(asError);
  await expect.poll(() => workers.all[0]!.pid).not.toBeNull();
  off.abort();
  expect(await starting).toMatchObject({ name: "AbortError" });
  await expect(workers.start("relay-2", duty)).rejects.toMatchObject({ name: "AbortError" });
  expect(workers.all).toHaveLength(1);
});

test.for([
  ["process.kill(process.pid, 'SIGKILL')", 1, 0],
  ["process.exit(1)", 0, 1],
] as const)("a life that was to end at its failpoint has fallen there only when it was killed: %s", async ([end, fallen, deaths]) => {
  workersThat(`process.send({ type: "ready" }, () => ${end});`);
  await workers.start("relay-1", { ...duty, failpoints: [{ at: "mid-batch", nth: 1, do: "kill" }] });
  await expect.poll(() => workers.all[0]!.lives, { timeout: 10_000 }).toBeGreaterThan(1);
  expect(Math.min(workers.all[0]!.fallen.length, 1)).toBe(fallen);
  expect(Math.min(workers.deaths.length, 1)).toBe(deaths);
});
