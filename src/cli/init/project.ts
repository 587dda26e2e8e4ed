import type { BrokerStarter, StarterLibrary, StarterTable, StoreStarter } from "../../contracts/starter.ts";

/** What the user chose. */
export interface Stack {
  readonly store: StoreStarter;
  readonly library: StarterLibrary;
  readonly broker: BrokerStarter;
}

export interface Project {
  /** Text by file name. */
  readonly files: ReadonlyMap<string, string>;
  readonly packages: readonly string[];
}

const topic = "order.events";
export const consumer = "shipping";
export const programs = { producer: "place-order.mjs", handler: "shipping.mjs" } as const;

/** Plain JavaScript modules: they run on every Node that Waybill runs on, without a build, and `@ts-check` types them in an editor. */
export function projectOf(stack: Stack): Project {
  const { store, library, broker } = stack;
  const composed = composeFile(stack);
  return {
    files: new Map([
      ["waybill.config.mjs", configFile(stack)],
      [programs.producer, producer(stack)],
      [programs.handler, handler(stack)],
      ...(library.generated === undefined ? [] : [[library.generated.file, text(library.generated.lines)] as const]),
      ...(composed === null ? [] : [["compose.yaml", composed] as const]),
    ]),
    packages: [...new Set([...store.packages, ...library.packages, ...broker.packages])],
  };
}

const text = (lines: readonly string[]): string => `${lines.join("\n")}\n`;

const configFile = ({ store, broker }: Stack): string =>
  text([
    "// The waybill commands read this file, and so do the programs beside it.",
    "",
    '/** @satisfies {import("waybill").ConfigFile} */',
    "const config = {",
    `  store: process.env.DATABASE_URL ?? ${JSON.stringify(store.url)},`,
    `  broker: process.env.BROKER_URL ?? ${JSON.stringify(broker.url)},`,
    `  topics: [${JSON.stringify(topic)}], // waybill migrate creates them`,
    "};",
    "export default config;",
  ]);

/** Node's own modules first, then packages, then files. */
function importsOf({ store, library }: Stack, table: StarterTable, waybill: readonly string[]): readonly string[] {
  const handles = library.handle === null ? [] : [`import { ${library.handle} } from "waybill/handles";`];
  const isFile = (line: string): boolean => line.includes(' from "./');
  return [
    ...library.imports[table].filter((line) => !isFile(line)),
    ...[...waybill, ...handles, `import { ${store.word} } from "waybill/${store.word}";`].sort(byPackage),
    ...library.imports[table].filter(isFile),
    'import config from "./waybill.config.mjs";',
  ];
}

const byPackage = (a: string, b: string): number => (a.split(" from ")[1]! < b.split(" from ")[1]! ? -1 : 1);

const opened = ({ library }: Stack, table: StarterTable): readonly string[] => ["", ...library.open, ...library.table[table]];

function producer(stack: Stack): string {
  const { store, library } = stack;
  const tx = library.handle === null ? "" : `, tx: ${library.handle}`;
  return text([
    "// @ts-check",
    `// Writes an order and its event in one transaction: node ${programs.producer}`,
    'import { randomUUID } from "node:crypto";',
    ...importsOf(stack, "orders", ['import { createOutbox } from "waybill";']),
    ...opened(stack, "orders"),
    `const store = ${store.word}(${library.options});`,
    `const outbox = createOutbox({ store${tx} });`,
    "",
    "const order = { id: randomUUID(), total: 4200 };",
    `await outbox.transaction(${library.db}, async (tx, events) => {`,
    `  ${library.insert.orders}`,
    '  events.add({ aggregateType: "Order", aggregateId: order.id, type: "OrderPlaced", payload: order });',
    "});",
    "console.log(`order ${order.id} is placed, and its event is in the outbox`);",
    "",
    library.close,
  ]);
}

function handler(stack: Stack): string {
  const { store, library, broker } = stack;
  const options = library.handle === null ? library.options : library.options.replace(/ \}$/, `, tx: ${library.handle}, db }`);
  return text([
    "// @ts-check",
    `// Makes a parcel for each order, once, until SIGTERM or Ctrl-C: node ${programs.handler}`,
    ...importsOf(stack, "parcels", [
      'import { createSubscriber } from "waybill";',
      `import { ${broker.word} } from "waybill/${broker.word}";`,
    ]),
    ...opened(stack, "parcels"),
    `const inbox = ${store.word}(${options});`,
    `const source = ${broker.word}(${broker.options});`,
    "",
    "const shipping = createSubscriber({",
    `  consumer: "${consumer}",`,
    "  source,",
    "  inbox,",
    "  topics: config.topics,",
    "  handlers: {",
    "    OrderPlaced: async (event, tx) => {",
    `      ${library.insert.parcels} // in one transaction with the inbox's mark`,
    "      console.log(`order ${event.aggregateId} has its parcel`);",
    "    },",
    "  },",
    "});",
    'for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void shipping.drain());',
    "",
    "await shipping.start();",
    'console.log("shipping waits for orders");',
    "await shipping.stopped;",
    "",
    library.close,
  ]);
}

/** Null where nothing needs a server. */
function composeFile({ store, broker }: Stack): string | null {
  const served = [store, broker].flatMap(({ word, service }) => (service === null ? [] : [{ word, service }]));
  if (served.length === 0) return null;
  return text([
    "# Servers for development: docker compose up --detach --wait",
    "services:",
    ...served.flatMap(({ word, service: { lines, data } }) => [
      `  ${word}:`,
      ...lines.map((line) => `    ${line}`),
      `    volumes: ["${word}:${data}"]`,
    ]),
    "volumes:",
    ...served.map(({ word }) => `  ${word}:`),
  ]);
}
