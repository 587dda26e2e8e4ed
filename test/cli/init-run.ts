import { spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { built, cli, until } from "./build.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** Prisma would download an engine that only its migrations need; any program in its place keeps it from that. */
const quiet = { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: "1" };

export interface Written {
  readonly store: string;
  readonly broker: string;
  readonly handle?: string;
  /** Where the servers of this test are. Without them, the project's own URLs are used. */
  readonly env?: Readonly<Record<string, string>>;
  /** Kills relay and handler once. A lease and a seat must expire then, which takes a while. */
  readonly kills?: true;
  /** Counts orders and parcels, past the project's own programs. */
  counts(folder: string): Promise<{ readonly orders: number; readonly parcels: number }>;
}

interface Started {
  readonly child: ChildProcess;
  readonly ended: Promise<number | null>;
  readonly out: () => string;
}

/**
 * Writes a project with `waybill init` and follows its own commands: migrate, relay, handler, producer. It resolves when each order has one parcel, and both programs have ended by SIGTERM.
 */
export async function followInit({ store, broker, handle, env = {}, kills, counts }: Written): Promise<void> {
  const main = await built();
  const folder = mkdtempSync(join(tmpdir(), "waybill-init-run-"));
  const running: ChildProcess[] = [];
  try {
    mkdirSync(join(folder, "node_modules"));
    symlinkSync(root, join(folder, "node_modules/waybill"));
    // The clients, as npm install would bring them.
    for (const name of ["pg", "mysql2", "libsql", "drizzle-orm", "kysely", "knex", "typeorm", "prisma", "@prisma"])
      symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name));
    const words = ["init", "--store", store, "--broker", broker, ...(handle === undefined ? [] : ["--handle", handle]), "--json"];
    const wrote = await cli(words, { cwd: folder });
    expect(wrote, wrote.stderr).toMatchObject({ code: 0, stderr: "" });
    const { commands } = JSON.parse(wrote.stdout) as { commands: string[] };
    const [migrate, relay, handler, producer] = ["migrate", "waybill relay", "shipping.mjs", "place-order.mjs"].map((word) =>
      commands.find((command) => command.includes(word))!.replace(/^npx waybill /, `node ${main} `),
    );
    const start = (
      command: string,
    ): { readonly child: ChildProcess; readonly ended: Promise<number | null>; readonly out: () => string } => {
      const [program, ...args] = command.split(" ");
      const child = spawn(program!, args, { cwd: folder, env: { PATH: process.env["PATH"], ...quiet, ...env } });
      running.push(child);
      let out = "";
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (out += text));
      return { child, ended: new Promise((resolve) => child.on("close", resolve)), out: () => out };
    };
    const run = async (command: string): Promise<void> => {
      const { ended, out } = start(command);
      expect({ command, code: await ended, out: out() }).toMatchObject({ command, code: 0 });
    };
    const waits = async (command: string, word: string): Promise<Started> => {
      const started = start(command);
      await until(() => {
        if (started.child.exitCode !== null) throw new Error(`${command} ended: ${started.out()}`);
        return started.out().includes(word);
      }, 60_000);
      return started;
    };

    const generate = commands.find((command) => command.startsWith("npx prisma "));
    if (generate !== undefined) await run(generate.replace("npx prisma", `node ${join(root, "node_modules/prisma/build/index.js")}`));
    await run(migrate!);
    const both = (): Promise<Started[]> => Promise.all([waits(relay!, "publishing from"), waits(handler!, "shipping waits")]);
    let services = await both();
    await run(producer!);
    await until(async () => (await counts(folder)).parcels === 1, 60_000);
    if (kills === true) {
      for (const { child, ended } of services) {
        child.kill("SIGKILL");
        await ended;
      }
      await run(producer!);
      services = await both();
    }
    await run(producer!);
    const orders = kills === true ? 3 : 2;
    await until(async () => (await counts(folder)).parcels === orders, 90_000);
    for (const { child, ended, out } of services) {
      child.kill("SIGTERM");
      expect({ code: await ended, out: out() }).toMatchObject({ code: 0 });
    }
    expect(await counts(folder)).toEqual({ orders, parcels: orders });
  } finally {
    for (const child of running) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
}
