import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { startNats } from "../servers/nats.ts";
import { inProcess } from "./in-process.ts";

await describeWith("nats", "waybill dead with a broker", () => {
  test("tells a topic that the broker lacks before anything is done", async () => {
    const cwd = mkdtempSync(join(tmpdir(), "waybill-letters-"));
    await using server = await startNats();
    const at = ["--store", `sqlite:${join(cwd, "app.db")}`, "--broker", server.url()];
    expect((await inProcess(["migrate", ...at, "--topics", "order.events"], { cwd })).code).toBe(0);
    const redrive = (topic: string) =>
      inProcess(["dead", "redrive", "--all", "--yes", "--consumer", "shipping", "--topic", topic, ...at], { cwd });
    expect(await redrive("order.events")).toMatchObject({ code: 0, stdout: "No letter matches.\n" });
    expect(await redrive("order.event")).toMatchObject({ code: 1, stderr: expect.stringContaining("DESTINATION_UNAVAILABLE") as string });
    rmSync(cwd, { recursive: true, force: true });
  });
});
