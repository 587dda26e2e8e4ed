import type { Duplex } from "node:stream";
import { asError } from "../../../core/errors.ts";
import { systemDeadlines } from "../../../core/deadlines.ts";
import { loadClient } from "../../../core/load-client.ts";
import type { PgRow } from "../connection.ts";
import { verified } from "../driver.ts";
import { guarded } from "../guard.ts";

export interface LinkSettings {
  readonly url: string;
  readonly connectTimeoutMs: number;
}

/** A connection that can carry the log. The driver opens it, so TLS, passwords and certificates are as everywhere else. */
export interface LogLink {
  /** Of the server's process. */
  readonly pid: number;
  /** Simple statements and replication commands only. Rejects after `patienceMs`; null waits for as long as it takes. */
  run(text: string, patienceMs: number | null): Promise<readonly PgRow[]>;
  /** The socket, with no listener of the driver's for what arrives. The caller listens before its turn ends, and statements are over. */
  take(): Duplex;
  /** For a link whose socket is not taken. */
  end(): void;
  /** Without a farewell. */
  destroy(): void;
}

/** What of a `pg` client is used: `connection` is private, since pg 7. */
interface Client {
  readonly connection: { readonly stream: Duplex };
  readonly processID: number;
  connect(connected: (error: unknown) => void): void;
  query(query: { readonly text: string; readonly types: unknown }): Promise<{ readonly rows: readonly PgRow[] }>;
  on(event: "error", listener: () => void): unknown;
  end(): Promise<void>;
}

const raw = { getTypeParser: () => (value: string) => value };

export async function openLink({ url, connectTimeoutMs }: LinkSettings): Promise<LogLink> {
  const { default: library } = await loadClient("PostgreSQL", "pg", () => import("pg"));
  const options = {
    connectionString: verified(url),
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    application_name: "waybill-tail",
    replication: "database",
  };
  const client = new (guarded(library.Client))(options) as unknown as Client;
  client.on("error", () => undefined); // each statement, and then the socket, says so too
  await new Promise<void>((resolve, reject) => client.connect((error) => (error ? reject(asError(error)) : resolve())));
  const destroy = (): void => void client.connection.stream.destroy();
  return {
    pid: client.processID,
    async run(text, patienceMs) {
      const answer = client.query({ text, types: raw });
      const result = patienceMs === null ? await answer : await systemDeadlines.within(patienceMs, answer);
      if (result !== null) return [result].flat().at(-1)!.rows;
      destroy();
      throw Object.assign(new Error("it did not answer in time"), { code: "ETIMEDOUT" });
    },
    take() {
      const { stream } = client.connection;
      stream.removeAllListeners("data");
      return stream;
    },
    end: () => void client.end().catch(() => undefined),
    destroy,
  };
}
