import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { embedded } from "../../src/brokers/embedded/index.ts";

/** The embedded broker in a folder of its own, as the redrive suite takes brokers. */
export const place = {
  async start() {
    const folder = mkdtempSync(join(tmpdir(), "waybill-redrive-"));
    return {
      url: () => join(folder, "broker.db"),
      async [Symbol.asyncDispose]() {
        rmSync(folder, { recursive: true, force: true });
      },
    };
  },
  open: (path: string) => embedded({ path }),
  provision: async () => undefined,
};
