import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { freePort } from "../servers/place.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { cli, start, until } from "./build.ts";

await describeWith("postgres", "the pages of a relay whose database is out of reach", () => {
  let server: Postgres;
  let link: TcpProxy;
  let folder: string;
  let pages: string;
  let end: () => Promise<void>;
  beforeAll(async () => {
    server = await startPostgres({ version: 15, settings: { max_connections: 16 } });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), "waybill-pages-"));
    link = await startTcpProxy(server.port);
    const urls = ["--store", server.url().replace(`:${server.port}`, `:${link.port}`), "--broker", `embedded:${join(folder, "broker.db")}`];
    expect((await cli(["migrate", ...urls], { cwd: folder })).code).toBe(0);
    pages = `127.0.0.1:${await freePort()}`;
    const relay = await start(["relay", ...urls, "--http", pages], { cwd: folder });
    end = async () => {
      link.heal();
      relay.child.kill("SIGTERM");
      await relay.result;
      await link[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true, force: true });
    };
    await until(async () => (await answer("/readyz").catch(() => null)) === 200, 15_000);
  });
  afterEach(() => end());

  const ask = async (page: string): Promise<{ readonly status: number; readonly tookMs: number }> => {
    const from = performance.now();
    const response = await fetch(`http://${pages}${page}`, { signal: AbortSignal.timeout(20_000) });
    await response.text();
    return { status: response.status, tookMs: performance.now() - from };
  };
  /** As a probe asks: within a second. What a busy machine adds is told by a page that asks no store, again and again meanwhile. */
  const answer = async (page: string): Promise<number> => {
    let waiting = true;
    const asking = ask(page).finally(() => (waiting = false));
    asking.catch(() => undefined);
    let busyMs = 0;
    while (waiting) {
      busyMs = Math.max(busyMs, (await ask("/healthz")).tookMs);
      const from = performance.now();
      await new Promise((resolve) => setTimeout(resolve, 10));
      busyMs = Math.max(busyMs, performance.now() - from - 10);
    }
    const { status, tookMs } = await asking;
    expect(tookMs - busyMs, page).toBeLessThan(1_000);
    return status;
  };

  /** Every page answers every time, and `/readyz` says no in the end. */
  async function saysNo(): Promise<void> {
    await until(async () => {
      expect(await answer("/healthz")).toBe(200);
      expect(await answer("/metrics")).toBe(200);
      return (await answer("/readyz")) === 503;
    }, 30_000);
  }
  const saysYes = (): Promise<void> => until(async () => (await answer("/readyz")) === 200, 30_000);

  test("answer within a second while the database has no connection left, and are ready again when it has", async () => {
    const holders: pg.Client[] = [];
    const take = async (): Promise<boolean> => {
      const client = new pg.Client({ connectionString: server.url() });
      client.on("error", () => undefined);
      const taken = await client.connect().then(
        () => true,
        () => false,
      );
      if (taken) holders.push(client);
      return taken;
    };
    const allTaken = async (): Promise<boolean> => {
      while (await take());
      const text = "SELECT count(*)::int AS taken FROM pg_stat_activity WHERE backend_type = 'client backend'";
      const [row] = (await holders[0]!.query<{ taken: number }>(text)).rows;
      return row?.taken === holders.length;
    };
    try {
      // The relay dials again at once and may be faster than the test: it is cut off until every connection is the test's.
      while (!(await allTaken())) link.reset();
      await saysNo();
    } finally {
      await Promise.all(holders.map((client) => client.end()));
    }
    await saysYes();
  });

  test("answer within a second while the database is silent, and are ready again when it speaks", async () => {
    link.fault("up", { hold: true });
    link.fault("down", { hold: true });
    await saysNo();
    link.heal();
    await saysYes();
  });
});
