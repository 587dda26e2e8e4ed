import { chanceOf, type Chance } from "./chance.ts";
import { dates, hostileJson, hostileText, numbers, tell } from "./values.ts";

export type BrokerName = "embedded" | "kafka" | "rabbitmq" | "nats" | "redis";

/** A message as whoever may publish can write it. Attributes and headers become what the broker makes of them, unless `raw` is set. */
export interface Message {
  readonly attributes: readonly (readonly [string, string])[];
  readonly headers: readonly (readonly [string, string])[];
  readonly data: Buffer | null;
  /** What the broker's protocol has in place of a well-formed head: NATS's header block, AMQP's table, Kafka's records, and so on. */
  readonly raw: { readonly what: string; readonly bytes: Buffer } | null;
}

const attributesOf = (id: string): Record<string, string> => ({
  specversion: "1.0",
  id,
  type: "Fuzzed",
  source: "/fuzz",
  subject: id,
  partitionkey: id,
  time: "2030-01-01T00:00:00.000Z",
  datacontenttype: "application/json",
  aggregatetype: "Fuzz",
  eventversion: "1",
  sequence: "1",
});

export const messagesOf = (seed: number, broker: BrokerName, count: number): readonly Message[] =>
  Array.from({ length: count }, (_, n) => messageOf(chanceOf(seed, `${broker} message ${n}`), broker, `m-${seed}-${n}`));

function messageOf(chance: Chance, broker: BrokerName, id: string): Message {
  const attributes = attributesOf(id);
  const names = Object.keys(attributes);
  for (let changes = chance.pick([0, 1, 1, 2]); changes > 0; changes--) {
    const name = chance.pick(names);
    if (chance.is(0.3)) delete attributes[name];
    else
      attributes[name] =
        name === "time" ? chance.pick(dates) : /sequence|eventversion/.test(name) ? chance.pick(numbers) : hostileText(chance);
  }
  const headers = Array.from(
    { length: chance.pick([0, 0, 1, 2]) },
    () => [short(hostileText(chance)), short(hostileText(chance))] as const,
  );
  const data = chance.pick<() => Buffer | null>([
    () => Buffer.from(hostileJson(chance)),
    () => Buffer.from(hostileText(chance)),
    () => Buffer.from([0xff, 0xfe, 0x00, 0xc3]),
    () => Buffer.alloc(0),
    () => null,
    () => Buffer.from('{"n":1}'),
  ])();
  const raw = chance.is(0.5) ? (raws[broker]?.(chance, id) ?? null) : null;
  return { attributes: Object.entries(attributes), headers, data, raw };
}

const short = (text: string): string => text.slice(0, 20_000);

const raws: Readonly<Partial<Record<BrokerName, (chance: Chance, id: string) => { what: string; bytes: Buffer }>>> = {
  nats: natsBlock,
  rabbitmq: amqpTable,
  kafka: kafkaRecords,
  embedded: (chance) => {
    const json = hostileJson(chance);
    return { what: `attributes ${tell(json)}`, bytes: Buffer.from(json) };
  },
  redis: (chance) => {
    const bytes = Buffer.from(chance.noise(chance.pick([1, 3, 9, 4_000])), "latin1");
    return { what: `fields of ${bytes.length} bytes each`, bytes };
  },
};

function natsBlock(chance: Chance, id: string): { what: string; bytes: Buffer } {
  const good = `ce-id: ${id}\r\nce-type: Fuzzed\r\n`;
  const block = chance.pick([
    ...[100, 200, 400, 404, 408, 409, 423, 503].map((status) => `NATS/1.0 ${status} Hostile Status\r\n${good}\r\n`),
    ...["NATS/1.0 999\r\n\r\n", "NATS/1.0 x\r\n\r\n", "NATS/1.0\r\n\r\n", "NATS/1.0", "", "HTTP/1.1 200 OK\r\n\r\n", "\r\n\r\n"],
    ...[`NATS/1.0\r\na b: c\r\n${good}\r\n`, `NATS/1.0\r\nno colon\r\n${good}\r\n`, `NATS/1.0\r\n: empty\r\n${good}\r\n`],
    ...[
      `NATS/1.0\r\n${good}`,
      `NATS/1.0\n${good.replaceAll("\r", "")}\n`,
      `NATS/1.0\r\n${good}${good}\r\n`,
      `NATS/1.0\r\n\u0000: \u0000\r\n${good}\r\n`,
    ],
    ...[
      `NATS/1.0\r\nce-id: %ff%\r\nce-type: x\r\n\r\n`,
      `NATS/1.0\r\nNats-Msg-Id: 1\r\nStatus: 503\r\n${good}\r\n`,
      `NATS/1.0\r\n é: ü\r\n${good}\r\n`,
    ],
    `NATS/1.0\r\n${"h: v\r\n".repeat(3_000)}${good}\r\n`,
    `NATS/1.0\r\n${chance.noise(60_000)}: v\r\n${good}\r\n`,
  ]);
  return { what: `header block ${tell(block)}`, bytes: Buffer.from(block, "latin1") };
}

const shortText = (text: string | Buffer): Buffer => Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);
const longText = (bytes: Buffer): Buffer => Buffer.concat([u32(bytes.length), bytes]);
const u32 = (n: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(n);
  return bytes;
};

/** What is between a table's braces, not counting its length. */
function amqpTable(chance: Chance, id: string): { what: string; bytes: Buffer } {
  const field = (name: string | Buffer, kind: string, value: Buffer): Buffer => Buffer.concat([shortText(name), Buffer.from(kind), value]);
  const good = Buffer.concat([
    field("cloudEvents:id", "S", longText(Buffer.from(id))),
    field("cloudEvents:type", "S", longText(Buffer.from("Fuzzed"))),
  ]);
  const deep = (depth: number, kind: "F" | "A"): Buffer => {
    let inner: Buffer = Buffer.alloc(0);
    for (let n = 0; n < depth; n++)
      inner = kind === "F" ? field("a", "F", longText(inner)) : Buffer.concat([Buffer.from("A"), longText(inner)]);
    return kind === "F" ? inner : field("a", "A", longText(inner));
  };
  const eight = Buffer.alloc(8, 0x7f);
  const [what, more] = chance.pick<readonly [string, Buffer]>([
    ...[10, 100, 1_000, 3_000, 5_000].map((depth) => [`a table ${depth} deep`, deep(depth, "F")] as const),
    ...[10, 1_000, 5_000].map((depth) => [`an array ${depth} deep`, deep(depth, "A")] as const),
    ...(["b", "B", "s", "u", "I", "i", "l", "f", "d", "T", "D", "L", "t"] as const).map(
      (kind) =>
        [
          `a field of kind ${kind}`,
          field("odd", kind, eight.subarray(0, { b: 1, B: 1, t: 1, s: 2, u: 2, I: 4, i: 4, f: 4, D: 5 }[kind as "b"] ?? 8)),
        ] as const,
    ),
    ["a void field", field("void", "V", Buffer.alloc(0))],
    ["binary", field("bin", "x", longText(Buffer.from([0, 255, 254])))],
    ["an id that is a number", field("cloudEvents:id", "l", eight)],
    ["an id that is a table", field("cloudEvents:id", "F", longText(field("a", "t", Buffer.from([1]))))],
    ["an id that is void", field("cloudEvents:id", "V", Buffer.alloc(0))],
    ["a type twice", field("cloudEvents:type", "S", longText(Buffer.from("Another")))],
    ["an empty name", field("", "S", longText(Buffer.from("x")))],
    ["a name that is no UTF-8", field(Buffer.from([0xff, 0xfe]), "S", longText(Buffer.from([0xff])))],
    ["__proto__", field("__proto__", "S", longText(Buffer.from("x")))],
    ["a time beyond time", field("cloudEvents:time", "T", Buffer.alloc(8, 0x7f))],
    ["x-death", field("x-death", "A", longText(Buffer.alloc(0)))],
    ["2,000 fields", Buffer.concat(Array.from({ length: 2_000 }, (_, n) => field(`h${n}`, "t", Buffer.from([1]))))],
  ]);
  return { what: `header table with ${what}`, bytes: chance.is(0.7) ? Buffer.concat([good, more]) : more };
}

function kafkaRecords(chance: Chance, id: string): { what: string; bytes: Buffer } {
  // The first byte tells the writer of batches what to make of it.
  const [what, kind] = chance.pick<readonly [string, number]>([
    ["null key, value and headers", 1],
    ["headers that are no UTF-8", 2],
    ["gzip of 64 MiB of zeros", 3],
    ["an old message set (magic 1)", 4],
    ["an old message set (magic 0)", 5],
    ["an empty header name", 6],
    ["2,000 headers", 7],
    ["a timestamp of 1970", 8],
  ]);
  return { what, bytes: Buffer.concat([Buffer.from([kind]), Buffer.from(id)]) };
}

export function tellMessage({ attributes, headers, data, raw }: Message): string {
  const pairs = (of: Message["attributes"]): string => of.map(([name, value]) => `${tell(name)}: ${tell(value)}`).join(", ");
  const body = `data ${data === null ? "none" : tell(data.toString("latin1"))}`;
  if (raw !== null) return `${raw.what}, ${body}`;
  const usual = attributesOf(attributes.find(([name]) => name === "id")?.[1] ?? "");
  const changed = attributes.filter(([name, value]) => usual[name] !== value);
  const missing = Object.keys(usual).filter((name) => !attributes.some(([other]) => other === name));
  return `attributes {${pairs(changed)}}${missing.length > 0 ? ` without ${missing.join(", ")}` : ""}, headers {${pairs(headers)}}, ${body}`;
}
