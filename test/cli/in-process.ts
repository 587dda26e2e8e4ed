import { adapters as table, type Adapters } from "../../src/cli/adapters.ts";
import { run, type Host } from "../../src/cli/program.ts";
import type { Result } from "./build.ts";

export interface InProcessOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly adapters?: Adapters;
  /** What a person answers, one after the other; then the input ends. Without it, nobody sits at a terminal. */
  readonly answers?: readonly string[];
}

/** The same program without a process of its own: for the many cases where only the words and the exit code matter. */
export async function inProcess(
  args: readonly string[],
  { cwd, env = {}, stdin = "", adapters = table, answers }: InProcessOptions,
): Promise<Result> {
  let [stdout, stderr] = ["", ""];
  const left = [...(answers ?? [])];
  const host: Host = {
    ...(answers === undefined ? {} : { ask: async () => left.shift() ?? null }),
    cwd,
    env,
    stdin: () => Promise.resolve(Buffer.from(stdin)),
    onSignal: () => undefined,
    stdout: { write: (text) => void (stdout += text), colour: false },
    stderr: { write: (text) => void (stderr += text), colour: false },
  };
  const code = await run(args, host, adapters);
  return { code, signal: null, stdout, stderr };
}
