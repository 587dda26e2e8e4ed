import { posix } from "node:path";
import { parse, type Import, type SourceFile } from "./imports.ts";

const maxLines = 350;
/** A store's schema is one file, whatever its length, so that a reader finds every table, index and function in one place. */
const schemaFile = "schema.sql.ts";
const runtime = ["outbox", "relay", "subscriber"];
const memory = ["stores/memory", "brokers/memory"];
/** Rooms inside a room, each with a rule of its own. Every folder of stores/ and brokers/ is one too. */
const inner = ["outbox/handles", "relay/lanes", "relay/housekeeping", "proof/judge", "proof/crew", "proof/run"];
const basics = ["core", "contracts"];

/**
 * What each room may import besides itself. A room that is not here is refused, so that a new one gets its rule first.
 * "root" are the files directly in src/. An adapter shares code with others of its kind through their kit alone.
 */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  core: [],
  contracts: ["core"],
  outbox: basics,
  "outbox/handles": basics,
  relay: [...basics, "relay/lanes", "relay/housekeeping"],
  "relay/lanes": basics,
  "relay/housekeeping": basics,
  subscriber: basics,
  observe: basics,
  doctor: basics,
  "drivers/sqlite": basics,
  stores: [...basics, "stores/kit"],
  "stores/kit": basics,
  "stores/sqlite": [...basics, "stores/kit", "drivers/sqlite"],
  brokers: [...basics, "brokers/kit"],
  "brokers/kit": basics,
  "brokers/embedded": [...basics, "brokers/kit", "drivers/sqlite"],
  conformance: basics,
  "proof/judge": basics,
  "proof/crew": [...basics, "proof/judge"],
  "proof/run": [...basics, ...runtime, "proof/judge", "proof/crew"],
  dev: [...basics, ...runtime, "observe", "proof", "stores/sqlite", "brokers/embedded", "drivers/sqlite"],
  root: [...basics, ...runtime, "observe"],
  testing: [...basics, ...runtime, "root", ...memory],
  cli: [...basics, ...runtime, "observe", "doctor", "drivers", "root", "stores", "brokers", "proof", "dev"],
};

/** Every broken rule, one line each; nothing when all is well. Keys are paths from the repository, such as src/core/lane.ts. */
export function violations(sources: ReadonlyMap<string, string>): readonly string[] {
  const files = new Map([...sources].map(([path, text]) => [path, parse(path, text)]));
  return [...[...files.values()].flatMap((file) => [...ownRules(file), ...importRules(file, files)]), ...cycles(files)];
}

function ownRules(file: SourceFile): readonly string[] {
  const found: string[] = [];
  const room = roomOf(file.path);
  const lines = file.text.split("\n").length - (file.text.endsWith("\n") ? 1 : 0);
  const mark = /\b(TODO|FIXME|XXX|HACK)\b|eslint-disable|@ts-(ignore|expect-error|nocheck)/.exec(file.text);
  if (rule(room) === undefined) found.push(`${file.path}: the room ${room} has no rule`);
  if (lines > maxLines && posix.basename(file.path) !== schemaFile) found.push(`${file.path}: ${lines} lines, more than ${maxLines}`);
  if (mark !== null) found.push(`${file.path}: holds ${mark[0]}`);
  if (file.exportsAll) found.push(`${file.path}: export *`);
  if (room === "contracts" && !file.typesOnly) found.push(`${file.path}: a contract holds more than types`);
  if (runtime.includes(room) && posix.basename(file.path) === "index.ts") found.push(`${file.path}: an index in a runtime folder`);
  return found;
}

function importRules(file: SourceFile, files: ReadonlyMap<string, SourceFile>): readonly string[] {
  return file.imports.flatMap((found) => {
    const why = forbidden(file.path, found, files);
    return why === null ? [] : [`${file.path}: ${found.specifier === null ? "a computed import" : `imports ${found.specifier}`}, ${why}`];
  });
}

function forbidden(path: string, { specifier, target, typesOnly }: Import, files: ReadonlyMap<string, SourceFile>): string | null {
  const from = roomOf(path);
  const isDriver = posix.basename(path) === "driver.ts" && /^(stores|brokers|drivers)\b/.test(from);
  if (specifier === null) return isDriver || from === "cli" ? null : "which only a driver.ts and cli may have";
  if (target === null) {
    if (!specifier.startsWith("node:")) return isDriver ? null : "a package, which only a driver.ts may do";
    return from === "contracts" ? "but contracts import core only" : null;
  }
  if (!files.has(target)) return "which is not a file of src";
  // A released text must not change when the runtime changes.
  if (posix.basename(path) === schemaFile && !typesOnly && posix.basename(target) !== "names.ts")
    return "but a schema imports names and types only";
  const to = roomOf(target);
  if (to === from) return null;
  // The one root file that names adapters: memory has a store and a broker, and one door for both.
  if (path === "src/memory.ts" && memory.includes(to)) return null;
  const allowed = rule(from) ?? [];
  return allowed.includes(to) || allowed.includes(to.split("/")[0]!) ? null : `but ${from} may not import ${to}`;
}

/** src/core/lane.ts is in core, src/stores/sqlite/claim.ts in stores/sqlite, src/index.ts in root. */
function roomOf(path: string): string {
  const [, first = "", second = "", ...rest] = path.split("/");
  if (second === "") return "root";
  const room = `${first}/${second}`;
  return inner.includes(room) || (["stores", "brokers", "drivers"].includes(first) && rest.length > 0) ? room : first;
}

function rule(room: string): readonly string[] | undefined {
  return mayImport[room] ?? (room.includes("/") ? mayImport[room.split("/")[0]!] : undefined);
}

function cycles(files: ReadonlyMap<string, SourceFile>): readonly string[] {
  const found: string[] = [];
  const done = new Set<string>();
  const walk = (path: string, trail: readonly string[]): void => {
    if (trail.includes(path)) {
      found.push(`a cycle: ${[...trail.slice(trail.indexOf(path)), path].join(" → ")}`);
      return;
    }
    if (done.has(path)) return;
    for (const { target } of files.get(path)?.imports ?? []) if (target !== null) walk(target, [...trail, path]);
    done.add(path);
  };
  for (const path of files.keys()) walk(path, []);
  return found;
}
