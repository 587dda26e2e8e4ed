#!/usr/bin/env node
import { createInterface } from "node:readline";
import { failure } from "./failure.ts";
import { stoppedAtOnce } from "../core/service.ts";
import { print, type OutputStream } from "./output.ts";
import { debugging, run, type Host } from "./program.ts";

/** A closed pipe (`| head`) ends nothing: a relay must go on when its log is no longer read. */
function stream(to: NodeJS.WriteStream): OutputStream {
  let open = true;
  to.on("error", (error: NodeJS.ErrnoException) => {
    open = false;
    if (error.code === "EPIPE") return;
    process.exitCode = 1; // such as a full disk: the output is incomplete
    if (to === process.stdout) print(host.stderr, [`waybill: the output could not be written: ${error.message}`]);
  });
  return {
    write(text) {
      if (open) to.write(text);
    },
    colour: to.isTTY && process.env["NO_COLOR"] === undefined,
  };
}

/** An old or unusual terminal may not report its size. */
function screenOf(to: OutputStream): Pick<Host, "screen"> {
  const { stdout } = process;
  if (!stdout.isTTY || process.env["TERM"] === "dumb") return {};
  return { screen: { size: () => ({ columns: stdout.columns || 80, rows: stdout.rows || 24 }), write: to.write, colour: to.colour } };
}

async function stdin(): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Uint8Array);
  return Buffer.concat(chunks);
}

/** Asks a person for one line. Null when the input ends first, as with Ctrl-D. */
async function ask(question: string): Promise<string | null> {
  const lines = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return await new Promise((resolve) => {
      lines.once("close", () => resolve(null));
      lines.question(question, resolve);
    });
  } finally {
    lines.close();
  }
}

const graceMs = 1_000;

function onSignal(listener: (nth: number) => void): void {
  let nth = 0;
  for (const name of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
    process.on(name, () => {
      listener(++nth);
      // Aborted work may still wait for a lock. After a second signal the process does not wait for that either.
      if (nth === 2) setTimeout(() => fail(stoppedAtOnce()), graceMs).unref();
    });
  }
}

function fail(error: unknown): never {
  print(host.stderr, failure(error, { json: argv.includes("--json"), debug: debugging(process.env) }).lines);
  process.exit(1);
}

const argv = process.argv.slice(2);
const stdout = stream(process.stdout);
const host: Host = {
  stdout,
  ...screenOf(stdout),
  stderr: stream(process.stderr),
  cwd: process.cwd(),
  env: process.env,
  stdin,
  onSignal,
  ...(process.stdin.isTTY && process.stdout.isTTY && !argv.includes("--json") ? { ask } : {}),
};

process.on("uncaughtException", fail);

const exitCode = await run(argv, host);
process.exitCode ??= exitCode;
// A pool or a client of the configuration file may keep the process alive after the command. A pipe gets all of the output first.
const written = [process.stdout, process.stderr].map((to) => new Promise((resolve) => void to.write("", resolve)));
void Promise.all(written).then(() => process.exit());
