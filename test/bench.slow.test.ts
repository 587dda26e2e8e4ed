import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { describeWith } from "./servers/available.ts";

const root = fileURLToPath(new URL("..", import.meta.url));

interface Run {
  readonly findings: readonly {
    readonly question: string;
    readonly rows: readonly { readonly name: string; readonly measures: object }[];
  }[];
}

/** What a quick run leaves in its file. A bound that a short round breaks says nothing, and so the exit code does not either. */
async function quick(...words: readonly string[]): Promise<Run> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-bench-"));
  const json = join(folder, "bench.json");
  try {
    const command = ["scripts/run-ts.mjs", "bench/index.ts", "--quick", `--json=${json}`, ...words];
    await promisify(execFile)(process.execPath, command, { cwd: root }).catch(
      (error: { readonly code?: unknown; readonly stderr?: string }) => expect(error.code, error.stderr).toBe(1),
    );
    return JSON.parse(readFileSync(json, "utf8")) as Run;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const sidesOf = ({ findings }: Run): readonly (readonly string[])[] => findings.map(({ rows }) => rows.map(({ name }) => name));

await describeWith("postgres", "a quick run of the bench", () => {
  test("measures outbox.add on SQLite beside inserts by hand and no event, one by one and twenty at once", async () => {
    const byHand = ["by hand into our table", "by hand into a plain table"];
    expect(sidesOf(await quick("add", "--only=sqlite"))).toEqual([
      ["outbox.add", ...byHand, "no event"],
      ["outbox.add", ...byHand],
    ]);
  });

  test("measures what an event costs beside a reader that stays open, and beside blocked events", async () => {
    expect(sidesOf(await quick("growth", "--only=troubled"))).toEqual([
      ["nothing beside", "a reader holds the vacuum horizon", "10,000 events are blocked"],
    ]);
  });
});

await describeWith("mariadb", "a quick run of the bench on MariaDB", () => {
  test("measures outbox.add", async () => {
    expect(sidesOf(await quick("add", "--only=mariadb"))[0]).toContain("outbox.add");
  });
});

await describeWith("nats", "a quick run of the bench with JetStream", () => {
  test("measures a subscriber on SQLite, and a hot aggregate beside a client that awaits each acknowledgement", async () => {
    expect(sidesOf(await quick("subscriber", "growth", "--only=sqlite,hot-nats"))).toEqual([
      ["subscriber", "subscriber, batches of up to 100", "by hand, one transaction each"],
      ["relay, hot", "bare client that awaits each", "relay, uniform"],
    ]);
  });

  test("measures a loop that publishes and marks each event by itself beside the relay", async () => {
    expect(sidesOf(await quick("peers", "--only=loop"))).toEqual([
      ["relay, ordered by aggregate", "a loop that publishes and marks each event by itself"],
    ]);
  });

  test("measures how long other aggregates wait beside a hot one", async () => {
    const { findings } = await quick("growth", "--only=cold-nats");
    expect(findings[0]!.rows.every(({ measures }) => "coldP99" in measures)).toBe(true);
  });
});
