import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { adapters } from "../../src/cli/adapters.ts";
import { run } from "../../src/cli/program.ts";

// Nothing listens on port 1.
test.each(["postgres://ann:s3cret@127.0.0.1:1/app?sslmode=disable", "mysql://ann:s3cret@127.0.0.1:1/app"])(
  "waybill relay waits for a database that is away at the start, says so, and ends in order: %s",
  async (store) => {
    const cwd = mkdtempSync(join(tmpdir(), "waybill-away-"));
    onTestFinished(() => rmSync(cwd, { recursive: true }));
    let stdout = "";
    let stderr = "";
    let signal: (nth: number) => void = () => undefined;
    const code = run(
      ["relay", "--store", store, "--broker", "embedded:broker.db"],
      {
        ...{ cwd, env: {}, stdin: () => Promise.resolve(Buffer.from("")), onSignal: (handler) => void (signal = handler) },
        stdout: { write: (text) => void (stdout += text), colour: false },
        stderr: { write: (text) => void (stderr += text), colour: false },
      },
      adapters,
    );
    const ended = code.then((exit) => `ended with ${exit}: ${stderr}`);
    const waiting = async (): Promise<string> => {
      await expect.poll(() => stdout, { timeout: 20_000 }).toMatch(/started: publishing[\s\S]*cannot be reached/);
      return "waits";
    };
    expect(await Promise.race([ended, waiting()])).toBe("waits");
    signal(1);
    expect([await code, stderr]).toEqual([0, ""]);
    expect(stdout).not.toContain("s3cret");
  },
);

test("with --once it ends, since cron runs it again", async () => {
  let stderr = "";
  const host = {
    ...{ cwd: tmpdir(), env: {}, stdin: () => Promise.resolve(Buffer.from("")), onSignal: () => undefined },
    stdout: { write: () => undefined, colour: false },
    stderr: { write: (text: string) => void (stderr += text), colour: false },
  };
  expect(await run(["relay", "--once", "--store", "postgres://127.0.0.1:1/app", "--broker", "embedded:broker.db"], host, adapters)).toBe(1);
  expect(stderr).toMatch(/cannot be reached.*\[STORE_UNAVAILABLE\]/s);
});
