import { WaybillError } from "../../core/errors.ts";
import type { NewId } from "../../core/ids.ts";
import { asWord } from "../../core/text.ts";
import { outage } from "../kit/outage.ts";
import { unreadable, type Content, type Received } from "../kit/receiving.ts";
import type { Acks } from "./acks.ts";
import { fetchedIn, isCount, isList, type Unfetched } from "./answers.ts";
import type { RedisCommand } from "./protocol.ts";
import { absent, explain, plainBytes, wrong, type Link } from "./link.ts";
import { bytesOf, fieldBytes, maxFields, rawOf, toEnvelope } from "./message.ts";
import { RedisRefusal, type Reply } from "./replies.ts";
import { fetchScript, provisionScript, takeScript } from "./scripts.ts";

interface SessionOptions {
  readonly link: Link;
  readonly acks: Acks;
  readonly newId: NewId;
  readonly provision: boolean;
  readonly consumer: string;
  readonly topics: readonly string[];
  /** An entry with more bytes is not read. */
  readonly entryBytes: number;
  /** Entries of a topic were removed before they were read, or before they were acknowledged; null when their number is unknown. */
  readonly missed: (topic: string, entries: number | null) => void;
}

interface Entry extends Omit<Received, "ack"> {
  readonly id: string;
}

/** One receiver on its own connection. Its name in the group is new, to distinguish what an earlier session left under way. */
interface Session {
  /** At most `most` entries, of one topic, and none behind one that reaches `bytes`. Empty when nothing has come for a while. */
  next(most: number, bytes: number): Promise<readonly Entry[]>;
  readonly ended: AbortSignal;
  close(): void;
}

/** How far this session is in a topic. */
interface Cursor {
  readonly topic: string;
  /** Pending entries after this id come next; > once all of them have been read. */
  from: string;
  /** The group was given everything up to here. */
  reached: string;
}

const blockMs = 1_000;
/** So that one answer is not too large. */
const entriesPerRead = 256;
/** In an answer, a field takes up to a fourth more than the `fieldBytes` that count for it, and an entry this much besides its fields. */
const answerBytes = (counted: number): number => 1.25 * counted + entriesPerRead * 512;

export async function openSession(options: SessionOptions, signal: AbortSignal): Promise<Session> {
  const { link, acks, consumer, topics, entryBytes, missed } = options;
  const name = options.newId();
  const connection = await link.dial(signal);
  const ask = (commands: readonly RedisCommand[], counted = 0, extraMs = 0): Promise<readonly Reply[]> =>
    link.ask(connection, commands, { most: plainBytes(commands.length) + answerBytes(counted), extraMs });

  const gone = async (topic: string, ids: readonly string[]): Promise<void> => {
    if (ids.length === 0) return;
    missed(topic, ids.length);
    await Promise.all(ids.map((id) => acks.ack(topic, consumer, id)));
  };

  const take = async (topic: string): Promise<Cursor> => {
    const replies = await ask([...(options.provision ? [provisionScript(topic, consumer)] : []), takeScript(topic, consumer, name)]);
    const deleted = replies.at(-1);
    if (!isCount(deleted)) throw wrong(link.shown, "XAUTOCLAIM");
    if (deleted > 0) missed(topic, deleted);
    return { topic, from: "0-0", reached: "0-0" };
  };

  /** Null when there is no more. */
  const read = async (cursor: Cursor, most: number, bytes: number): Promise<readonly Entry[] | null> => {
    const { topic, from } = cursor;
    const bound = Math.ceil(Math.min(Math.max(bytes, 1), entryBytes));
    const script = fetchScript(topic, consumer, name, String(Math.min(most, entriesPerRead)), from, String(bound), String(entryBytes));
    const [reply] = await ask([script], bound + entryBytes);
    const entries = fetchedIn(reply);
    if (entries === null) throw wrong(link.shown, "XREADGROUP");
    if ("reached" in entries) {
      cursor.reached = entries.reached;
      if (entries.missed !== 0) missed(topic, entries.missed);
      return null;
    }
    if (from !== ">") cursor.from = entries.at(-1)?.id ?? ">";
    else if (entries.length === 0) throw wrong(link.shown, "XREADGROUP");
    const received: Entry[] = [];
    const deleted: string[] = [];
    for (const { id, fields } of entries) {
      if (fields === null) deleted.push(id);
      else if ("count" in fields) received.push({ topic, id, bytes: fieldBytes, ...unread(id, fields, entryBytes) });
      else received.push({ topic, id, bytes: bytesOf(fields), ...contentOf(id, fields) });
    }
    await gone(topic, deleted);
    return received;
  };

  const cursors: Cursor[] = [];
  const failed = (topic: string, error: unknown): Error => {
    const why = told(error, { link, consumer, topic });
    connection.end(why);
    return why;
  };
  for (const topic of topics) {
    cursors.push(
      await take(topic).catch((error: unknown) => {
        throw failed(topic, error);
      }),
    );
  }
  let turn = 0;
  return {
    ended: connection.ended,
    async next(most, bytes) {
      // Topics take turns at being read first.
      for (let n = 0; n < cursors.length; n++) {
        const cursor = cursors[turn++ % cursors.length]!;
        let received: readonly Entry[] | null = [];
        while (received?.length === 0) {
          received = await read(cursor, most, bytes).catch((error: unknown) => {
            throw failed(cursor.topic, error);
          });
        }
        if (received !== null) return received;
      }
      const ids = cursors.map(({ reached }) => reached);
      // A read without a group takes no entry: if its answer is lost, no entry is lost with it.
      const [woken] = await ask(
        [["XREAD", "COUNT", "1", "BLOCK", String(blockMs), "STREAMS", ...topics, ...ids]],
        entryBytes,
        blockMs,
      ).catch((error: unknown) => {
        throw failed(topics.join(", "), error);
      });
      if (woken !== null && !isList(woken)) throw failed(topics.join(", "), wrong(link.shown, "XREAD"));
      return [];
    },
    close: () => connection.end(new WaybillError("STOPPED", `the receiving of ${consumer} has ended`)),
  };
}

/** The raw bytes end where the fields would begin: the stream has the rest. */
function unread(id: string, { count, bytes }: Unfetched, most: number): Content {
  const why =
    count > maxFields ? `it has ${count} fields, and at most ${maxFields} are read` : `it has ${bytes} bytes, and at most ${most} are read`;
  return unreadable(id, `${why}: the stream has it as ${id}`, Buffer.from(`*${2 * count}\r\n`));
}

function contentOf(id: string, fields: readonly Buffer[]): Content {
  const envelope = toEnvelope(fields);
  if (envelope !== null) return { envelope };
  return unreadable(id, "it is not an event: fields are missing, twice there, or cannot be read", rawOf(fields));
}

function told(
  error: unknown,
  { link, consumer, topic }: { readonly link: Link; readonly consumer: string; readonly topic: string },
): Error {
  if (!(error instanceof RedisRefusal)) return error as Error;
  const say = (text: string): WaybillError => outage(`${link.shown} ${text}`, error);
  switch (error.word) {
    case "NOSTREAM":
      return absent(link.shown, topic, error);
    case "NOGROUP":
      return say(
        `has no group ${JSON.stringify(consumer)} on ${JSON.stringify(topic)}: provision it first (waybill migrate --broker ${link.shown} --topics ${asWord(topic)} --consumers ${consumer})`,
      );
    case "FENCED":
      return say(`gave ${JSON.stringify(topic)} to another session of ${JSON.stringify(consumer)}`);
    default:
      return explain(error, link.shown);
  }
}
