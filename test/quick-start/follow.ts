import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { built, until } from "../cli/build.ts";
import { save, stepsOf } from "./page-steps.ts";
import { openTerminal, type Terminal } from "./terminal.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const patienceMs = 120_000;

/** The packed tarball, of what is built. */
export async function pack(folder: string): Promise<string> {
  await built();
  const packing = openTerminal(`npm pack --silent --ignore-scripts --pack-destination "${folder}"`, root, {});
  expect(await packing.ended, packing.shown()).toEqual({ code: 0, signal: null });
  return join(folder, packing.shown().trim().split("\n").at(-1)!);
}

export interface Urls {
  readonly DATABASE_URL: string;
  readonly BROKER_URL: string;
}

/**
 * Follows a quick start as a reader does: saves its files, runs its commands and terminals in their order, kills in each terminal the process
 * that it names once, and starts it again. `changed` is the reader's own doing, where the page asks for it. Only the servers are others than the page's: `docker` is left out, and the two variables name `urls`.
 */
export async function follow(
  page: string,
  tarball: string,
  urls: Urls,
  changed = (text: string): string => text,
): Promise<Record<string, number>> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-quick-start-"));
  const terminals = new Map<string, Terminal>();
  const open = (line: string): void => void terminals.set(line, openTerminal(line, folder, env));
  const { npm_config_ignore_scripts, ...env } = environment(urls);
  const run = async (line: string): Promise<string> => {
    const terminal = openTerminal(line, folder, { ...env, npm_config_ignore_scripts });
    expect(await terminal.ended, `${line}\n${terminal.shown()}`).toEqual({ code: 0, signal: null });
    return terminal.shown();
  };
  try {
    cpSync(tarball, join(folder, basename(tarball)));
    let counts: Record<string, number> = {};
    for (const step of stepsOf(changed(readFileSync(join(root, "docs", page), "utf8")))) {
      if (step.kind === "file") save(folder, step);
      else if (step.kind === "terminal") open(step.line);
      else if (/^(docker|export) /.test(step.line)) continue;
      else if (step.line.endsWith(" count.ts")) {
        await breakEach(terminals, open);
        await finish(terminals, "orders.ts");
        counts = await settled(() => run(step.line));
      } else {
        const shown = await run(step.line);
        if (step.line === "npx waybill events list --limit 3") expect(shown).toMatch(/PUBLISHED/);
      }
    }
    for (const line of [...terminals.keys()]) await finish(terminals, line);
    return counts;
  } catch (error) {
    for (const [line, terminal] of terminals) console.error(`--- ${line}\n${terminal.shown().slice(-3_000)}`);
    throw error;
  } finally {
    for (const terminal of terminals.values()) terminal.send("SIGKILL");
    await Promise.all([...terminals.values()].map(({ ended }) => ended));
    rmSync(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 });
  }
}

/** Installing runs no scripts, as in this repository; Prisma would otherwise look for an engine that only its migrations need. */
const environment = (urls: Urls) => ({
  ...urls,
  npm_config_ignore_scripts: "true",
  PRISMA_SCHEMA_ENGINE_BINARY: process.execPath,
  CHECKPOINT_DISABLE: "1",
});

/** Kills the processes of each terminal once while orders come in, starts them again, and sees parcels made by what was started last. */
async function breakEach(terminals: ReadonlyMap<string, Terminal>, open: (line: string) => void): Promise<void> {
  const shows = (name: string): string => [...terminals].find(([line]) => line.includes(name))![1].shown();
  const parcels = (): number => shows("shipping.ts").split("parcel for order").length - 1;
  await until(() => parcels() >= 10, patienceMs);
  for (const [line, terminal] of [...terminals]) {
    const [, number] = /process (\d+)/.exec(terminal.shown()) ?? [];
    expect(number, `${line} does not print its process`).toBeDefined();
    process.kill(Number(number), "SIGKILL");
    await terminal.ended;
    const before = line.includes("shipping.ts") ? 0 : parcels();
    open(line);
    await until(() => parcels() >= before + 10 && /placed|parcel|lanes/.test(terminals.get(line)!.shown()), patienceMs);
  }
}

/** Ctrl-C, and a clean end. */
async function finish(terminals: Map<string, Terminal>, part: string): Promise<void> {
  const [line, terminal] = [...terminals].find(([each]) => each.includes(part))!;
  terminal.send("SIGINT");
  const end = await terminal.ended;
  // The shell that npx starts may die by the signal, and npx with it, while the command itself ends in order and says so.
  if (line.startsWith("npx ")) expect(terminal.shown()).toMatch(/ drained: everything is settled.*\n$/);
  else expect(end, `${line}\n${terminal.shown()}`).toEqual({ code: 0, signal: null });
  terminals.delete(line);
}

/** Counts until every order has its parcel, or until nothing more happens. */
async function settled(count: () => Promise<string>): Promise<Record<string, number>> {
  for (const deadline = Date.now() + patienceMs; ;) {
    const counts = Object.fromEntries([...(await count()).matchAll(/^(\w+) (\d+)$/gm)].map(([, table, rows]) => [table!, Number(rows)]));
    if (counts["parcels"]! >= counts["orders"]! || Date.now() > deadline) return counts;
  }
}
