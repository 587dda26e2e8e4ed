import { asError } from "../../core/errors.ts";
import { never } from "../../core/time.ts";
import type { RedisCommand } from "./protocol.ts";
import { explain, wrong, type Link } from "./link.ts";
import type { Reply } from "./replies.ts";

/** Acknowledgements of all consumers. Those that come while a round trip is under way go together in the next one. */
export interface Acks {
  /** Resolves when the server has it. */
  ack(topic: string, consumer: string, id: string): Promise<void>;
  /** Resolves when everything given so far has been answered, or has failed. */
  idle(): Promise<void>;
}

interface Noted {
  readonly topic: string;
  readonly consumer: string;
  readonly id: string;
  resolve(): void;
  reject(error: unknown): void;
}

const idsPerCommand = 1_000;

export function createAcks(link: Link): Acks {
  let noted: Noted[] = [];
  let running: Promise<void> | null = null;

  const send = async (commands: readonly RedisCommand[]): Promise<readonly (Reply | Error | undefined)[]> => {
    const { answers, landed } = link.send(await link.open(never), commands);
    await landed;
    return answers;
  };

  const flush = async (): Promise<void> => {
    while (noted.length > 0) {
      const parts = partsOf(noted);
      noted = [];
      const commands = parts.map((part): RedisCommand => ["XACK", part[0]!.topic, part[0]!.consumer, ...part.map(({ id }) => id)]);
      // Never rejects: nobody waits for the flush itself.
      const answers = await send(commands).catch((error: unknown) => commands.map(() => asError(error)));
      for (const [i, part] of parts.entries()) {
        const answer = answers[i];
        for (const { resolve, reject } of part) {
          if (answer instanceof Error) reject(explain(answer, link.shown));
          else if (typeof answer !== "number") reject(wrong(link.shown, "XACK"));
          else resolve();
        }
      }
    }
    running = null; // in the same tick as the last check of `noted`: a later ack starts another flush
  };

  return {
    ack: (topic, consumer, id) =>
      new Promise((resolve, reject) => {
        noted.push({ topic, consumer, id, resolve, reject });
        running ??= Promise.resolve().then(flush);
      }),
    idle: () => running ?? Promise.resolve(),
  };
}

/** Groups acks into commands: one XACK takes ids of one topic and one consumer, at most `idsPerCommand`. */
function partsOf(noted: readonly Noted[]): readonly (readonly Noted[])[] {
  const parts: Noted[][] = [];
  const last = new Map<string, Noted[]>();
  for (const one of noted) {
    const key = JSON.stringify([one.topic, one.consumer]);
    let part = last.get(key);
    if (part === undefined || part.length === idsPerCommand) {
      part = [];
      last.set(key, part);
      parts.push(part);
    }
    part.push(one);
  }
  return parts;
}
