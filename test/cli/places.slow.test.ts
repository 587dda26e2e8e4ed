import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { cli, start, until } from "./build.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-places-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test.skipIf(process.platform === "win32")("a URL may come through a pipe, which is read once", async () => {
  const pipe = join(folder, "pipe");
  await once(spawn("mkfifo", [pipe]), "exit");
  const writer = spawn("sh", ["-c", 'printf "sqlite:s.db" > "$0"', pipe]);
  expect(await cli(["migrate", "--store-file", pipe], { cwd: folder })).toMatchObject({ code: 0, stderr: "" });
  if (writer.exitCode === null) await once(writer, "exit");
  expect(readdirSync(folder)).toContain("s.db");
});

test.skipIf(process.platform !== "linux")("no URL is in the command line of verify or of its processes", async () => {
  writeFileSync(join(folder, "store"), "sqlite:s3cret-store.db");
  const args = ["verify", "--store-file", "store", "--minutes", "0.05", "--json"];
  const { child, result } = await start(args, { cwd: folder, env: { WAYBILL_BROKER: "embedded:s3cret-broker.db" } });
  const lines: string[] = [];
  const parents = new Map<number, number>();
  const look = (): boolean => {
    for (const pid of readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .map(Number)) {
      try {
        parents.set(pid, Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1]));
        if (pid === child.pid || parents.get(pid) === child.pid) lines.push(readFileSync(`/proc/${pid}/cmdline`, "utf8"));
      } catch {
        continue; // it has just ended
      }
    }
    return new Set(lines).size > 1;
  };
  await until(look);
  child.kill("SIGTERM");
  await result;
  expect(lines.join("\n")).toContain("worker");
  expect(lines.join("\n")).not.toContain("s3cret");
});
