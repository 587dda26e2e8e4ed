import { run } from "../../src/cli/program.ts";
import type { Result } from "./build.ts";

export interface InProcessOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** The same program without a process of its own: for the many cases where only the words and the exit code matter. */
export async function inProcess(args: readonly string[], { cwd, env = {}, stdin = "" }: InProcessOptions): Promise<Result> {
  let [stdout, stderr] = ["", ""];
  const code = await run(args, {
    cwd,
    env,
    stdin: () => Promise.resolve(Buffer.from(stdin)),
    onSignal: () => undefined,
    stdout: { write: (text) => void (stdout += text), colour: false },
    stderr: { write: (text) => void (stderr += text), colour: false },
  });
  return { code, signal: null, stdout, stderr };
}
