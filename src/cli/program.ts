import { suggestion } from "../core/options.ts";
import { packageVersion } from "../core/version.ts";
import { adapters as table, type Adapters } from "./adapters.ts";
import { dead } from "./commands/dead.ts";
import { doctor } from "./commands/doctor.ts";
import { events } from "./commands/events.ts";
import { init } from "./commands/init.ts";
import { migrate } from "./commands/migrate.ts";
import { purge } from "./commands/purge.ts";
import { relay } from "./commands/relay.ts";
import { status } from "./commands/status.ts";
import { tail } from "./commands/tail.ts";
import { loadConfig, type Config } from "./config.ts";
import { dev } from "./commands/dev.ts";
import { failure } from "./failure.ts";
import { commandHelp, groupHelp, programHelp } from "./help.ts";
import { createOutput, print, type OutputStream } from "./output.ts";
import { parse, type Command } from "./parse.ts";
import type { Terminal } from "./terminal.ts";
import { verify } from "./commands/verify.ts";
import { usage } from "./usage.ts";

export const commands: readonly Command[] = [init, dev, migrate, relay, status, ...tail, ...events, ...dead, purge, doctor, verify];

/** The process around the program. */
export interface Host extends Pick<Terminal, "env" | "stdin" | "onSignal" | "screen" | "ask" | "cwd"> {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
}

/** Runs one command line and returns its exit code. It never rejects. */
export async function run(argv: readonly string[], host: Host, adapters: Adapters = table): Promise<number> {
  try {
    const chosen = choose(argv, adapters);
    if ("lines" in chosen) {
      print(host.stdout, chosen.lines);
      return 0;
    }
    const { command } = chosen;
    const { values, words } = parse(command, chosen.rest);
    if (values.help) {
      print(host.stdout, commandHelp(command));
      return 0;
    }
    const config = values["no-config"] ? withoutConfig(values.config) : await loadConfig(host.cwd, values.config);
    const out = createOutput(host.stdout, values.json);
    const { stdout: _, stderr: __, ...around } = host;
    await command.run({ ...around, out, config, adapters }, values, words);
    return 0;
  } catch (error) {
    const { exitCode, lines } = failure(error, { json: argv.includes("--json"), debug: debugging(host.env) });
    print(host.stderr, lines);
    return exitCode;
  }
}

function withoutConfig(named: string | undefined): Config {
  if (named !== undefined) usage("--config and --no-config do not go together: leave one out");
  return {};
}

export const debugging = (env: Host["env"]): boolean => !["", "0", undefined].includes(env["WAYBILL_DEBUG"]);

type Chosen = { readonly command: Command; readonly rest: readonly string[] } | { readonly lines: readonly string[] };

function choose(argv: readonly string[], adapters: Adapters): Chosen {
  const [first, second] = argv;
  if (first === "--version") return { lines: [packageVersion() ?? "unknown"] };
  if (first === "--help" || first === "-h") return { lines: programHelp(commands, adapters) };
  if (first === "help") return { lines: helpFor(argv.slice(1), adapters) };
  if (first === undefined) usage(`waybill needs a command: ${firstWords().join(", ")}`);
  if (first.startsWith("-")) usage(`the command comes before its flags: waybill COMMAND ${first.split("=")[0]!}`);
  const single = commands.find(({ name }) => name === first);
  if (single !== undefined) return { command: single, rest: argv.slice(1) };
  const group = groupOf(first);
  if (second === "--help" || second === "-h") return { lines: groupHelp(first, group) };
  const found = group.find(({ name }) => name === `${first} ${second ?? ""}`);
  if (found !== undefined) return { command: found, rest: argv.slice(2) };
  const actions = group.map(({ name }) => name.split(" ")[1]!);
  if (second === undefined || second.startsWith("-")) usage(`waybill ${first} needs one of ${actions.join(", ")}`);
  usage(`waybill ${first} has no action ${JSON.stringify(second.slice(0, 80))}${suggestion(second, actions)}`);
}

function helpFor(words: readonly string[], adapters: Adapters): readonly string[] {
  const [first] = words;
  if (first === undefined) return programHelp(commands, adapters);
  const found = commands.find(({ name }) => name === words.join(" "));
  return found === undefined ? groupHelp(first, groupOf(first)) : commandHelp(found);
}

function groupOf(first: string): readonly Command[] {
  const group = commands.filter(({ name }) => name.startsWith(`${first} `));
  if (group.length > 0) return group;
  usage(`waybill has no command ${JSON.stringify(first.slice(0, 80))}${suggestion(first, [...firstWords(), "help"])}`);
}

const firstWords = (): string[] => [...new Set(commands.map(({ name }) => name.split(" ")[0]!))];
