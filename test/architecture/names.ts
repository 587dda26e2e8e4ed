/** Parts that each adapter has under one name, wherever its files keep them. They mean the same in each. */
const parts: Readonly<Record<string, string>> = {
  Answers: "what a server or a file told the doctor",
  Connection: "one connection to a server or a file",
  ConnectionOptions: "how one is made",
};

const declared = /^export (?:declare |abstract )*(?:interface|type|class) (\w+)/gm;
const adapterFile = /^src\/(stores|brokers)\/(?!kit\/)[^/]+\/(.*)$/;

/** The same file of two adapters of a kind is the same part, and may name its types alike. */
const roleOf = (path: string): string => path.replace(adapterFile, "$1/$2");

/** Exported types that share a name in different places: a reader could not tell which one is meant. */
export function sharedNames(files: ReadonlyMap<string, string>): readonly string[] {
  const paths = new Map<string, string[]>();
  for (const [path, text] of files) {
    for (const [, name] of text.matchAll(declared)) paths.set(name!, [...(paths.get(name!) ?? []), path]);
  }
  return [...paths]
    .filter(([name, where]) => !(name in parts) && new Set(where.map(roleOf)).size > 1)
    .map(([name, where]) => `${name} is a type in ${where.join(" and in ")}: one name for one thing`);
}
