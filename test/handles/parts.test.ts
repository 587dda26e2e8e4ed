import { describe, expect, test } from "vitest";
import { causesOf, sqlStateOf } from "../../src/core/causes.ts";
import { committed } from "../../src/core/commit.ts";
import { WaybillError } from "../../src/core/errors.ts";
import { lend, lending } from "../../src/core/lend.ts";
import * as handles from "../../src/outbox/handles/index.ts";
import { rewrite } from "../../src/outbox/handles/placeholders.ts";
import { raw } from "../../src/outbox/handles/raw.ts";
import { rowsOf, unwrapped } from "../../src/outbox/handles/result.ts";
import { refused } from "./body.ts";

describe("a statement is rewritten", () => {
  const marked = (sql: string): string =>
    rewrite(
      sql,
      (number) => `<${number}>`,
      (text) => text.toUpperCase(),
    );

  test.for([
    ["select $1, $2", "SELECT <1>, <2>"],
    ["select $2, $1, $2", "SELECT <2>, <1>, <2>"],
    ["select ?, ?", "SELECT <1>, <2>"],
    [`select * from "a?$1""b"."c" where d = $1`, `SELECT * FROM "A?$1""B"."C" WHERE D = <1>`],
    ["select '?''$1', `a?b``c`, ?", "SELECT '?''$1', `A?B``C`, <1>"],
    ["select $10", "SELECT <10>"],
    ["select 1", "SELECT 1"],
  ] as const)("outside names and strings: %s", ([sql, expected]) => {
    expect(marked(sql)).toBe(expected);
  });

  test("with Knex's question marks, and what it must not take for one", async () => {
    const asked: unknown[] = [];
    const query = raw({ raw: async (...given: unknown[]) => void asked.push(given) });
    await query(`SELECT "a?b"($2::json, $1)`, ["one", "two"]);
    await query("SELECT `a` = ?", ["one"]);
    expect(asked).toEqual([
      [`SELECT "a\\?b"(?::json, ?)`, ["two", "one"]],
      ["SELECT `a` = ?", ["one"]],
    ]);
    await expect(query(`SELECT "a\\?b"($1)`, ["one"])).rejects.toThrow(refused("UNSUPPORTED"));
  });
});

test("every library's handle refuses to begin on nothing, and says what it needs", async () => {
  for (const handle of Object.values(handles)) {
    for (const db of [null, undefined]) {
      const begun = handle.begin(db as never, async () => undefined);
      await expect(begun).rejects.toMatchObject({ code: "INVALID_OPTION", message: expect.stringContaining(`, not ${db}`) as string });
    }
  }
});

test("rows are found in what each client answers", () => {
  const rows = [{ id: "1" }];
  expect(rowsOf({ rows, command: "SELECT" })).toEqual(rows);
  expect(rowsOf([rows, [{ name: "id" }]])).toEqual(rows);
  expect(rowsOf(rows)).toEqual(rows);
  expect(rowsOf([{ affectedRows: 1 }, undefined])).toEqual([]);
  for (const none of [[], [[], []], { changes: 1 }, undefined, null, 7]) expect(rowsOf(none)).toEqual([]);
});

describe("what libraries have wrapped", () => {
  const client = Object.assign(new Error("duplicate"), { code: "23505", severity: "ERROR" });

  test.for([
    ["Drizzle", new Error("Failed query: … params: secret", { cause: client })],
    ["TypeORM", Object.assign(new Error("failed"), { driverError: client })],
    ["Sequelize", Object.assign(new Error("failed"), { parent: client, original: client })],
    ["nobody", client],
  ] as const)("is found: %s", async ([, error]) => {
    expect(causesOf(error)).toContain(client);
    await expect(unwrapped(Promise.reject(error))).rejects.toBe(client);
  });

  test("is searched to an end, also where it turns in circles", () => {
    const circle: { cause?: unknown } = new Error("round");
    circle.cause = { parent: circle };
    expect(causesOf(circle)).toEqual([circle, circle.cause]);
    expect(causesOf("text")).toEqual([]);
  });

  test("has a state only if a server gave it one", () => {
    expect(sqlStateOf(client)).toBe("23505");
    expect(sqlStateOf({ errno: 1062, sqlState: "23000", code: "ER_DUP_ENTRY" })).toBe("23000");
    expect(sqlStateOf({ originalCode: "40001", kind: "TransactionWriteConflict" })).toBe("40001");
    for (const none of [{ code: "EPIPE" }, { code: "P2028" }, { originalCode: "45009" }, { originalCode: "1062" }, {}])
      expect(sqlStateOf(none)).toBeNull();
  });
});

describe("a transaction that fails after its work", () => {
  const failing = (error: unknown, at: "work" | "commit"): Promise<unknown> =>
    committed(
      async (work) => {
        const result = await work("tx");
        if (at === "commit") throw error;
        return result;
      },
      async () => {
        if (at === "work") throw error;
      },
    );
  const lost = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });

  test.for([
    ["a lost link", lost],
    ["a library's own words for one", new Error("Client has encountered a connection error and is not queryable")],
    ["a server that goes down", Object.assign(new Error("terminating"), { code: "57P01", severity: "FATAL" })],
    ["a session that is killed", Object.assign(new Error("killed"), { errno: 1927, sqlState: "70100" })],
    ["an unknown completion", Object.assign(new Error("?"), { code: "40003", severity: "ERROR" })],
    ["a disk that fails", Object.assign(new Error("io"), { code: "SQLITE_IOERR" })],
    ["no error at all", undefined],
  ] as const)("without the database's refusal is unknown: %s", async ([, error]) => {
    await expect(failing(error, "commit")).rejects.toMatchObject({ code: "COMMIT_UNKNOWN", ...(error && { cause: error }) });
    await expect(failing(error, "work")).rejects.toBe(error);
  });

  test.for([
    ["a constraint", Object.assign(new Error("no"), { code: "23514", severity: "ERROR" })],
    ["a constraint, wrapped", new Error("Failed query", { cause: Object.assign(new Error("no"), { code: "23514", severity: "ERROR" }) })],
    ["a deadlock", Object.assign(new Error("deadlock"), { errno: 1213, sqlState: "40001" })],
    ["a locked file", Object.assign(new Error("locked"), { code: "SQLITE_BUSY" })],
    ["Waybill's own", new WaybillError("TRANSACTION_LOST", "lost")],
  ] as const)("with the database's refusal is refused: %s", async ([, error]) => {
    await expect(failing(error, "commit")).rejects.toBe(error);
  });

  test("is lost where Kysely, from 0.29 on, says that the server rolled back in place of the commit", async () => {
    const aborted = Object.assign(new Error("Transaction was rolled back instead of committed"), {
      [Symbol.for("kysely.AbortedTransactionError")]: true,
    });
    const over = (error: unknown) => ({
      isTransaction: false,
      transaction: () => ({
        async execute<T>(work: (tx: { isTransaction: true }) => Promise<T>): Promise<T> {
          await work({ isTransaction: true });
          throw error;
        },
      }),
    });
    const run = (error: unknown): Promise<unknown> =>
      committed(
        (work) => handles.fromKysely.begin(over(error) as never, work as never),
        async () => undefined,
      );
    await expect(run(aborted)).rejects.toMatchObject({ code: "TRANSACTION_LOST", cause: aborted });
    await expect(run(lost)).rejects.toMatchObject({ code: "COMMIT_UNKNOWN", cause: lost });
  });

  test("is a failure of the work, even if the library does not say so", async () => {
    const quiet = committed(
      async (work) => {
        await work("tx").catch(() => undefined);
        return 7;
      },
      async (): Promise<number> => {
        throw lost;
      },
    );
    await expect(quiet).rejects.toBe(lost);
  });

  test("is judged by its last run, where the library runs the work again", async () => {
    const run = committed(
      async (work) => {
        await work("first");
        await work("second");
      },
      async (tx: string) => {
        if (tx === "second") throw lost;
      },
    );
    await expect(run).rejects.toBe(lost);
  });
});

describe("what is lent", () => {
  class Tx {
    readonly #secret = "s";
    readonly nested = { value: 1 };
    get secret(): string {
      return this.#secret;
    }
    self(): this {
      return this;
    }
  }

  test("works as it is, until it is taken back", () => {
    const tx = new Tx();
    const { handle, takeBack } = lend(tx);
    expect(handle.secret).toBe("s");
    expect(handle.self()).toBe(tx);
    expect(handle.nested.value).toBe(1);
    expect(handle).toBeInstanceOf(Tx);
    const { self } = handle;
    takeBack();
    for (const late of [() => handle.secret, () => handle.self(), () => self.call(tx)]) expect(late).toThrow(refused("NO_TRANSACTION"));
  });

  test("may be a function with properties, some of them fixed", () => {
    const types = Object.assign((value: string) => `${value}!`, { json: (value: string) => `{${value}}` });
    const sql = Object.assign((text: string) => text, { types });
    const fixed = (): string => "fixed";
    Object.defineProperty(sql, "fixed", { value: fixed });
    const { handle, takeBack } = lend(sql as typeof sql & { readonly fixed: typeof fixed });
    expect([handle("a"), handle.types("b"), handle.types.json("c"), handle.fixed()]).toEqual(["a", "b!", "{c}", "fixed"]);
    takeBack();
    expect(() => handle("a")).toThrow(refused("NO_TRANSACTION"));
  });

  test("is taken back when the work is done, however it ends", async () => {
    const kept: Tx[] = [];
    expect(await lending(new Tx(), async (tx) => (kept.push(tx), 7))).toBe(7);
    const failing = lending(new Tx(), async (tx) => {
      kept.push(tx);
      throw new Error("no");
    });
    await expect(failing).rejects.toThrow("no");
    for (const tx of kept) expect(() => tx.self()).toThrow(refused("NO_TRANSACTION"));
  });
});

describe("an old client", () => {
  test("of pg does not say whether a transaction is open, and the server is asked", async () => {
    const sent: string[] = [];
    let answer: Error | null = null;
    const client = {
      async query(text: string) {
        sent.push(text);
        if (answer !== null) throw answer;
        return { rows: [], command: "" };
      },
    };
    await handles.fromPg(client).query("INSERT 1", []);
    expect(sent).toEqual(["SAVEPOINT waybill_inside", "RELEASE SAVEPOINT waybill_inside", "INSERT 1"]);
    sent.length = 0;
    answer = Object.assign(new Error("SAVEPOINT can only be used in transaction blocks"), { code: "25P01", severity: "ERROR" });
    await expect(handles.fromPg(client).query("INSERT 2", [])).rejects.toThrow(refused("NO_TRANSACTION"));
    expect(sent).toEqual(["SAVEPOINT waybill_inside"]);
  });

  test("of Kysely does not know that its transaction has ended, and is refused with the version that does", async () => {
    const sent: string[] = [];
    class Old {
      readonly isTransaction = true as const;
      readonly config: object;
      constructor(config: object) {
        this.config = config;
      }
      transaction(): { execute<T>(work: (tx: Old) => Promise<T>): Promise<T> } {
        return { execute: (work) => work(new Old(this.config)) };
      }
      startTransaction(): void {}
      async executeQuery({ sql }: { readonly sql: string }): Promise<{ readonly rows: readonly unknown[] }> {
        if (this.config === used) sent.push(sql);
        return { rows: [] };
      }
    }
    class Transaction extends Old {}
    const used = {};
    const tx = new Transaction(used);
    for (let time = 1; time <= 2; time++) {
      const adding = Promise.resolve(handles.fromKysely(tx).query("INSERT 1", []));
      await expect(adding).rejects.toThrow(refused("DRIVER_UNFIT"));
      await expect(handles.fromKysely(tx).query("INSERT 1", [])).rejects.toThrow(/0\.28\.11/);
    }
    expect(sent).toEqual([]);
  });
});
