import type { Message } from "../fuzz/messages.ts";

/** Messages that a publisher may write past the relay, with a raw client. */
export interface PublisherMessages {
  readonly name: string;
  readonly count: number;
  readonly message: (n: number) => Message;
  /** Each of them becomes a letter: at once, or when its last attempt has failed. */
  readonly letters?: "at once" | "after attempts";
  /** Only so many have an effect of their own. */
  readonly marks: (count: number) => number;
  /** The largest message that the broker takes with its own settings is smaller than these. */
  readonly not?: readonly string[];
}

const attributes = (id: string, more: Readonly<Record<string, string>> = {}): [string, string][] =>
  Object.entries({
    ...{ specversion: "1.0", id, type: "Known", source: "/price", subject: id, partitionkey: id, time: "2030-01-01T00:00:00.000Z" },
    ...{ datacontenttype: "application/json", aggregatetype: "Priced", eventversion: "1", sequence: "1", ...more },
  });
const event = (id: string, more: Partial<Message> & { readonly as?: Readonly<Record<string, string>> } = {}): Message => {
  const { as, ...rest } = more;
  return { attributes: attributes(id, as), headers: [], data: Buffer.from('{"n":1}'), raw: null, ...rest };
};
const all = (count: number): number => count;
const none = (): number => 0;
const deep = 5_000;

export const messages: readonly PublisherMessages[] = [
  { name: "ordinary messages, for comparison", count: 2_000, message: (n) => event(`m-${n}`), marks: all },
  {
    name: "messages that are no events",
    count: 2_000,
    message: (n) => ({ attributes: [], headers: [], data: Buffer.from(`junk ${n}`), raw: null }),
    letters: "at once",
    marks: none,
  },
  { name: "messages of unknown types", count: 2_000, message: (n) => event(`m-${n}`, { as: { type: `Unknown${n}` } }), marks: none },
  {
    name: "messages that the handler refuses, of as many aggregates",
    count: 2_000,
    message: (n) => event(`m-${n}`, { as: { type: "Doomed" } }),
    letters: "after attempts",
    marks: all,
  },
  {
    name: "messages of 20 ids, with other bytes each time",
    count: 2_000,
    message: (n) => event(`m-${n % 20}`, { data: Buffer.from(`{"n":${n}}`), as: { partitionkey: `m-${n % 20}` } }),
    marks: () => 20,
  },
  {
    name: "messages with 200 headers",
    count: 500,
    message: (n) => event(`m-${n}`, { headers: Array.from({ length: 200 }, (_, at) => [`h${at}`, "x".repeat(20)] as const) }),
    marks: all,
  },
  {
    name: "messages with data and a header nested 5,000 levels deep",
    count: 500,
    message: (n) => {
      const nested = "[".repeat(deep) + "]".repeat(deep);
      return event(`m-${n}`, { headers: [["deep", nested]], data: Buffer.from(nested) });
    },
    marks: all,
  },
  {
    name: "messages with 512 KiB of data",
    count: 100,
    message: (n) => event(`m-${n}`, { data: Buffer.from(`"${"x".repeat(512 * 1_024)}"`) }),
    marks: all,
  },
];
