import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import type { NewId } from "../../core/ids.ts";
import type { Acks } from "./acks.ts";
import { RedisRefusal, type Command, type Connection, type Reply } from "./driver.ts";
import { absent, explain, type Link } from "./link.ts";
import { toEnvelope } from "./message.ts";
import { fetchScript, provisionScript, takeScript } from "./scripts.ts";

export interface SessionOptions {
  readonly link: Link;
  readonly acks: Acks;
  readonly newId: NewId;
  readonly provision: boolean;
  readonly consumer: string;
  readonly topics: readonly string[];
}

export interface Received {
  readonly topic: string;
  readonly id: string;
  readonly envelope: Envelope;
}

/** One receiver on a connection of its own. Its name within the group is new, so that what an earlier one left under way is told apart. */
export interface Session {
  /** At most so many, of one topic; none when nothing has come for a while. */
  next(most: number): Promise<readonly Received[]>;
  readonly ended: AbortSignal;
  close(): void;
}

/** How far this session is in a topic. */
interface Cursor {
  readonly topic: string;
  /** What is pending after this id comes next; > when all of that has been had. */
  from: string;
  /** The group was given everything up to here. */
  reached: string;
}

const blockMs = 1_000;
/** So that one answer is not too large. */
const entriesPerRead = 256;

export async function openSession(options: SessionOptions, signal: AbortSignal): Promise<Session> {
  const { link, acks, consumer, topics } = options;
  const name = options.newId();
  const connection = await link.dial(signal);
  const ask = (commands: readonly Command[], extraMs?: number): Promise<readonly Reply[]> => link.ask(connection, commands, extraMs);

  const passed = async (topic: string, ids: readonly string[], why: string): Promise<void> => {
    if (ids.length === 0) return;
    await recordSkipped(link, connection, { consumer, topic, ids, why });
    await Promise.all(ids.map((id) => acks.ack(topic, consumer, id)));
  };

  const take = async (topic: string): Promise<Cursor> => {
    const replies = await ask([...(options.provision ? [provisionScript(topic, consumer)] : []), takeScript(topic, consumer, name)]);
    const deleted = (replies.at(-1) as readonly Reply[]).map(String);
    await passed(topic, deleted, gone);
    return { topic, from: "0-0", reached: "0-0" };
  };

  /** Null when there is no more. */
  const read = async (cursor: Cursor, most: number): Promise<readonly Received[] | null> => {
    const { topic, from } = cursor;
    const [reply] = await ask([fetchScript(topic, consumer, name, String(Math.min(most, entriesPerRead)), from)]);
    if (!Array.isArray(reply)) {
      cursor.reached = String(reply);
      return null;
    }
    const entries = reply as readonly (readonly [Buffer, readonly Reply[] | null])[];
    if (from !== ">") cursor.from = entries.length === 0 ? ">" : String(entries.at(-1)![0]);
    const received: Received[] = [];
    const foreign: string[] = [];
    const deleted: string[] = [];
    for (const [bytes, fields] of entries) {
      const id = String(bytes);
      const envelope = fields === null ? null : toEnvelope(fields);
      if (envelope !== null) received.push({ topic, id, envelope });
      else (fields === null ? deleted : foreign).push(id);
    }
    await passed(topic, deleted, gone);
    await passed(topic, foreign, "not an event: it lacks attributes, or they cannot be read");
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
    async next(most) {
      // Each topic is the first in its turn.
      for (let n = 0; n < cursors.length; n++) {
        const cursor = cursors[turn++ % cursors.length]!;
        let received: readonly Received[] | null = [];
        while (received?.length === 0) {
          received = await read(cursor, most).catch((error: unknown) => {
            throw failed(cursor.topic, error);
          });
        }
        if (received !== null) return received;
      }
      const ids = cursors.map(({ reached }) => reached);
      // A read without a group: should its answer be lost, nothing is lost with it.
      await ask([["XREAD", "COUNT", "1", "BLOCK", String(blockMs), "STREAMS", ...topics, ...ids]], blockMs).catch((error: unknown) => {
        throw failed(topics.join(", "), error);
      });
      return [];
    },
    close: () => connection.end(new WaybillError("STOPPED", `the receiving of ${consumer} has ended`)),
  };
}

const gone = "deleted from the stream before it was acknowledged";
const skippedKey = "waybill:skipped";
const skippedKept = "10000";

async function recordSkipped(
  link: Link,
  connection: Connection,
  {
    consumer,
    topic,
    ids,
    why,
  }: { readonly consumer: string; readonly topic: string; readonly ids: readonly string[]; readonly why: string },
): Promise<void> {
  const records = ids.map((id): Command => {
    return ["XADD", skippedKey, "MAXLEN", "~", skippedKept, "*", "topic", topic, "consumer", consumer, "id", id, "why", why];
  });
  await link.ask(connection, records).catch((error: unknown) => {
    // Where the record may not be written, deliveries go on all the same.
    if (!(error instanceof RedisRefusal)) throw error;
  });
}

function told(
  error: unknown,
  { link, consumer, topic }: { readonly link: Link; readonly consumer: string; readonly topic: string },
): Error {
  if (!(error instanceof RedisRefusal)) return error as Error;
  const say = (text: string): WaybillError => new WaybillError("DESTINATION_UNAVAILABLE", `${link.shown} ${text}`, { cause: error });
  switch (error.word) {
    case "NOSTREAM":
      return absent(link.shown, topic, error);
    case "NOGROUP":
      return say(
        `has no group ${JSON.stringify(consumer)} on ${JSON.stringify(topic)}: provision it first (waybill migrate --broker ${link.shown} --topics ${topic} --consumers ${consumer})`,
      );
    case "FENCED":
      return say(`gave ${JSON.stringify(topic)} to another session of ${JSON.stringify(consumer)}`);
    default:
      return explain(error, link.shown);
  }
}
