import { fork } from "node:child_process";
import { compile } from "./compiled.ts";
import type { Report, Request } from "./memory-child.ts";

/** What a subscriber in a process of its own held. */
export async function memoryOf(request: Request): Promise<Report> {
  const { program, remove } = compile("test/brokers/memory-child.ts");
  try {
    return await new Promise((resolve, reject) => {
      const child = fork(program, [JSON.stringify(request)], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
      let report: Report | null = null;
      child.on("message", (message) => (report = message as Report));
      child.on("exit", (code, signal) => {
        if (report !== null) resolve(report);
        else reject(new Error(`the subscriber ended with ${signal ?? code} and told nothing`));
      });
    });
  } finally {
    remove();
  }
}
