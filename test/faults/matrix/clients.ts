import mysql from "mysql2/promise";
import pg from "pg";

export async function onPostgres<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => undefined);
  await client.connect();
  return work(client).finally(() => client.end().catch(() => undefined));
}

export async function onMysql<T>(url: string, work: (connection: mysql.Connection) => Promise<T>): Promise<T> {
  const connection = await mysql.createConnection(url);
  connection.on("error", () => undefined);
  return work(connection).finally(() => connection.destroy());
}

/** A connection that is kept for nothing; null when the server has none left. */
export async function holdPostgres(url: string): Promise<(() => Promise<unknown>) | null> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => undefined);
  try {
    await client.connect();
  } catch (error) {
    if ((error as { code?: string }).code === "53300") return null;
    throw error;
  }
  return () => client.end();
}

export async function holdMysql(url: string): Promise<(() => Promise<unknown>) | null> {
  try {
    const connection = await mysql.createConnection(url);
    connection.on("error", () => undefined);
    return () => connection.end();
  } catch (error) {
    if ((error as { errno?: number }).errno === 1040) return null;
    throw error;
  }
}
