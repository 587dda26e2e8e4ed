import { expect, test } from "vitest";
import { lendTurn } from "../../src/core/lend-turn.ts";

/** A client that answers when it is told to, and reports the end of its transaction only behind the failure of a COMMIT. */
function client() {
  const sent: string[] = [];
  const waiting: (() => void)[] = [];
  let open = true;
  return {
    sent,
    fail: () => waiting.shift()!(),
    getTransactionStatus: () => (open ? "T" : "I"),
    async query(text: string): Promise<void> {
      sent.push(text);
      if (text === "COMMIT") await new Promise<void>((_, reject) => waiting.push(() => reject(new Error("guarded"))));
      if (text === "") open = false;
    },
  };
}

test("a statement behind a COMMIT that fails is refused, because it would commit by itself", async () => {
  const tx = client();
  const { handle } = lendTurn(tx, () => tx.getTransactionStatus() !== "I");
  const commit = handle.query("COMMIT");
  const behind = handle.query("INSERT");
  tx.fail();
  await expect(commit).rejects.toThrow("guarded");
  await expect(behind).rejects.toMatchObject({ code: "NO_TRANSACTION" });
  await expect(handle.query("INSERT")).rejects.toMatchObject({ code: "NO_TRANSACTION" });
  expect(tx.sent.filter((text) => text !== "")).toEqual(["COMMIT"]);
});

test("only a call that may have made a savepoint is followed", async () => {
  const follows = async (text: unknown): Promise<boolean> => {
    const { handle, mayLeaveSavepoints } = lendTurn(client());
    await handle.query(text as string);
    return mayLeaveSavepoints();
  };
  for (const text of ["INSERT INTO orders", { text: "SELECT 1" }, { sql: "SELECT 1" }]) expect(await follows(text)).toBe(false);
  for (const text of ["savepoint a", { text: "SAVEPOINT a" }, "CALL tidy()", { name: "prepared before" }])
    expect(await follows(text)).toBe(true);
});
