import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import { expect, test } from "vitest";
import { newestLts, newestNode } from "../scripts/newest-node.mjs";
import { until } from "./cli/build.ts";
import { pack } from "./quick-start/follow.ts";
import { openTerminal, type Terminal } from "./quick-start/terminal.ts";

const page = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const start = page.slice(page.indexOf("## Start"));
const [, commands = ""] = /```sh\n([\s\S]*?)```/.exec(start) ?? [];
const files = [...start.matchAll(/```js (\S+)\n([\s\S]*?)```/g)].map(([, name = "", code = ""]) => ({ name, code }));

/** As a reader does, in an empty folder with the packed tarball, and with nothing but what the README says. */
async function follow(node: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-readme-"));
  const path = [dirname(node), process.env["PATH"]].join(delimiter);
  const open: Terminal[] = [];
  const terminal = (line: string): Terminal => {
    const opened = openTerminal(line, folder, { PATH: path });
    open.push(opened);
    return opened;
  };
  const run = async (line: string): Promise<string> => {
    const { ended, shown } = terminal(line);
    expect({ line, ...(await ended) }, shown()).toEqual({ line, code: 0, signal: null });
    return shown();
  };
  try {
    const packed = await pack(folder);
    expect(commands).toContain(`./${basename(packed)}`);
    const lines = commands.trim().split("\n");
    expect(lines).toHaveLength(3);
    for (const line of lines) await run(line);
    for (const line of ["npx waybill relay", "node shipping.mjs"]) expect(start).toContain(`\`${line}\``);
    const relay = terminal("npx waybill relay");
    const shipping = terminal("node shipping.mjs");
    await until(() => shipping.shown().includes("shipping waits for orders"), 60_000).catch((cause: unknown) => {
      throw new Error(`${relay.shown()}\n${shipping.shown()}`, { cause });
    });
    const [, order = ""] = /order (\S+) is placed/.exec(await run("node place-order.mjs")) ?? [];
    await until(() => shipping.shown().includes(`order ${order} has its parcel`), 60_000);
    for (const each of [relay, shipping]) each.send("SIGTERM");
    await Promise.all([relay.ended, shipping.ended]);

    expect(files.map(({ name }) => name)).toEqual(["first-event.mjs", "shop.mjs"]);
    for (const { name, code } of files) {
      writeFileSync(join(folder, name), code);
      expect(start).toContain(`\`node ${name}\``);
    }
    expect((await run("node first-event.mjs")).trim()).toBe("1");
    for (let times = 0; times < 2; times++) expect(await run("node shop.mjs")).toMatch(/parcel for o-\d+/);
  } finally {
    for (const each of open) each.send("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  }
}

test("the README's start, followed to the letter from the packed tarball, on this Node", { timeout: 300_000 }, () =>
  follow(process.execPath),
);

test("and on the newest LTS", { timeout: 300_000 }, async (context) => {
  const name = `node${newestLts}`;
  const node = await newestNode().catch((error: unknown) => {
    const required = (process.env["WAYBILL_REQUIRE"] ?? "").split(/[\s,]+/).some((word) => word === name || word === "all");
    if (required) throw error;
    return context.skip(`${name} cannot be had here: ${String(error).split("\n")[0]}`);
  });
  await follow(node);
});
