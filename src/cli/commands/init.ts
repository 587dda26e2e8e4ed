import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { asError, WaybillError } from "../../core/errors.ts";
import { suggestion } from "../../core/options.ts";
import { shellWord } from "../../core/text.ts";
import { consumer, programs, projectOf, type Project, type Stack } from "../init/project.ts";
import { command, flag } from "../parse.ts";
import { asIs } from "../read.ts";
import type { Terminal } from "../terminal.ts";
import { usage } from "../usage.ts";

interface Choice {
  readonly word: string;
  readonly name: string;
}

export const init = command({
  name: "init",
  summary:
    "Writes a first project for your stack: a configuration, a producer, a handler and a compose file. It asks on a terminal, and never overwrites a file.",
  words: { shown: "[FOLDER]", least: 0, most: 1 },
  flags: {
    store: flag.value("NAME", "the database: sqlite, postgres or mysql (also MariaDB)", asIs),
    broker: flag.value("NAME", "the broker: embedded, kafka, rabbitmq, nats or redis", asIs),
    handle: flag.value("NAME", "how the service talks to the database, such as drizzle (default: the database's own client)", asIs),
  },
  examples: [
    "waybill init",
    "waybill init --store postgres --broker nats --handle drizzle",
    "waybill init shop --store sqlite --broker embedded",
  ],
  async run(terminal, values, [folder = "."]) {
    const stack = await chooseStack(terminal, values);
    const project = projectOf(stack);
    const at = resolve(terminal.cwd, folder);
    write(at, folder, project);
    const next = commandsFor(stack, project, folder, isInstalled(at));
    const files = [...project.files.keys()];
    terminal.out.answer({ folder: at, files, commands: next.map(({ run }) => run) }, () => [
      `Wrote ${files.join(", ")}${folder === "." ? "" : ` in ${folder}`}.`,
      "They are plain JavaScript modules, which Node runs without a build. Next:",
      "",
      ...aligned(next),
    ]);
  },
});

type Given = Readonly<Record<"store" | "broker" | "handle", string | undefined>>;

async function chooseStack(terminal: Terminal, given: Given): Promise<Stack> {
  const { stores, brokers } = terminal.adapters;
  const offered = {
    stores: stores.flatMap(({ name, starter }) => (starter === undefined ? [] : [{ ...starter, name }])),
    brokers: brokers.flatMap(({ name, starter }) => (starter === undefined ? [] : [{ ...starter, name }])),
  };
  const asked = terminal.ask !== undefined;
  const missing = (["store", "broker"] as const).filter((what) => given[what] === undefined);
  if (!asked && missing.length > 0) {
    const words = { store: offered.stores, broker: offered.brokers };
    const ways = missing.map((what) => `--${what} ${words[what].map(({ word }) => word).join("|")}`);
    usage(`waybill init asks on a terminal only: give ${ways.join(" and ")}`);
  }
  const store = await choose(terminal, "store", "Which database?", offered.stores, given.store);
  const libraries = store.libraries.map((library) => ({ ...library, name: library.word }));
  const handle = given.handle ?? (asked && libraries.length > 1 ? undefined : libraries[0]!.word);
  const library = await choose(terminal, "handle", "Which library does your service use?", libraries, handle);
  const broker = await choose(terminal, "broker", "Which broker?", offered.brokers, given.broker);
  return { store, library, broker };
}

/** The flag's word, or what the user picks by number or by word. */
async function choose<C extends Choice>(
  { ask, out }: Terminal,
  what: keyof Given,
  question: string,
  choices: readonly C[],
  given: string | undefined,
): Promise<C> {
  const words = choices.map(({ word }) => word);
  const find = (text: string): C | undefined => choices.find(({ word }, i) => word === text.toLowerCase() || text === String(i + 1));
  if (given !== undefined || ask === undefined) {
    const word = given ?? "";
    const known = choices.find((choice) => choice.word === word);
    return known ?? usage(`--${what} ${JSON.stringify(word.slice(0, 80))} is not offered${suggestion(word, words)}`);
  }
  out.line(question);
  choices.forEach(({ word, name }, i) => out.line(`  ${i + 1}  ${word}${name === word ? "" : ` (${name})`}`));
  for (;;) {
    const answer =
      (await ask(`1 to ${choices.length}, or the word [${words[0]!}]: `)) ?? usage("nothing was chosen, and nothing was written");
    const found = find(answer.trim() === "" ? words[0]! : answer.trim());
    if (found !== undefined) return found;
    out.line(`There are ${words.join(", ")}.`);
  }
}

/** Writes all files or none, as far as a check beforehand can see. A file that exists is the user's. */
function write(at: string, shown: string, { files }: Project): void {
  const there = [...files.keys()].filter((name) => existsSync(join(at, name)));
  if (there.length > 0)
    usage(
      `${listed(there)} ${there.length === 1 ? "is" : "are"} there already, and nothing was written: give another folder (waybill init FOLDER), or move ${there.length === 1 ? "it" : "them"} away`,
    );
  try {
    makeFolder(at);
    for (const [name, content] of files) {
      makeFolder(dirname(join(at, name)));
      writeFileSync(join(at, name), content, { flag: "wx" });
    }
  } catch (cause) {
    throw new WaybillError("USAGE", `${shown} cannot be written to: ${asError(cause).message}`, { cause });
  }
}

/** Node's own recursive way tries for ever where a file system says that a parent which exists does not, as /proc does. */
function makeFolder(path: string): void {
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  mkdirSync(path);
}

const listed = (names: readonly string[]): string => names.join(", ").replace(/, ([^,]+)$/, " and $1");

interface Step {
  readonly run: string;
  readonly why: string;
}

function commandsFor({ broker, library }: Stack, { files, packages }: Project, folder: string, installed: boolean): readonly Step[] {
  const tested = testedVersions();
  const wanted = [
    ...(installed ? [] : ["waybill"]),
    ...packages.map((name) => shellWord(`${name}@${tested[name] === undefined ? "latest" : `^${tested[name]}`}`)),
  ];
  return [
    ...(folder === "." ? [] : [{ run: `cd ${shellWord(folder)}`, why: "" }]),
    ...(wanted.length === 0 ? [] : [{ run: `npm install ${wanted.join(" ")}`, why: "" }]),
    ...(library.generated === undefined ? [] : [{ run: library.generated.run, why: `makes the client of ${library.generated.file}` }]),
    ...(files.has("compose.yaml") ? [{ run: "docker compose up --detach --wait", why: "or set DATABASE_URL and BROKER_URL" }] : []),
    { run: `npx waybill migrate${broker.consumers ? ` --consumers ${consumer}` : ""}`, why: "creates tables and topics" },
    { run: "npx waybill relay", why: "in a terminal of its own" },
    { run: `node ${programs.handler}`, why: "in another" },
    { run: `node ${programs.producer}`, why: "as often as you like" },
    { run: "npx waybill status", why: "what was published, and what waits" },
  ];
}

/** Whether Node would find the package from this folder. It may come from a tarball, which the registry's copy must not replace. */
const isInstalled = (folder: string): boolean =>
  existsSync(join(folder, "node_modules/waybill/package.json")) || (dirname(folder) !== folder && isInstalled(dirname(folder)));

function aligned(steps: readonly Step[]): readonly string[] {
  const width = Math.max(...steps.filter(({ why }) => why !== "").map(({ run }) => run.length));
  return steps.map(({ run, why }) => (why === "" ? `  ${run}` : `  ${run.padEnd(width)}  # ${why}`));
}

/** The newest version of a client may be one that this release was not tested with. */
function testedVersions(): Readonly<Record<string, string>> {
  const manifest = readFileSync(new URL("../../../package.json", import.meta.url), "utf8");
  return (JSON.parse(manifest) as { devDependencies: Record<string, string> }).devDependencies;
}
