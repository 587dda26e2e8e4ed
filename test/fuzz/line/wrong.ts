import { setTimeout as sleep } from "node:timers/promises";
import type { Damage } from "./damage.ts";
import { framingOf, type Frame, type LineName } from "./frames.ts";

type Bytes = Iterable<Buffer> | AsyncIterable<Buffer>;

/** What a server said once that ended a process, filled its memory, or made it give events up. The seeds may say it or not. */
export interface WrongAnswer {
  readonly server: LineName;
  readonly name: string;
  /** What arrives in place of the `at`-th frame of a connection; null: the frame itself. */
  say(frame: Frame, at: number): Bytes | null;
  /** The connection is silent behind it. Otherwise every such frame is replaced. */
  readonly once: boolean;
}

const mib = 1024 * 1024;
const crlf = "\r\n";

/** It must not come out at the terminal: an escape sequence that sets the title. */
const raw = Buffer.from(`\u001b]0;taken over\u0007 undefined${crlf}`);

function* flood(head: string | Buffer): Iterable<Buffer> {
  yield Buffer.from(head);
  const block = Buffer.alloc(mib / 4, 0x61);
  for (let sent = 0; sent < 64 * mib; sent += block.length) yield block;
}

const text = ({ bytes }: Frame): string => bytes.toString("latin1");

/** Redis greets with an array of two strings. */
const greeting = 3;
const redis = (name: string, say: () => Bytes): WrongAnswer => ({
  server: "redis",
  name,
  once: true,
  say: (_, at) => (at >= greeting ? say() : null),
});

const sized = (size: number): Buffer => {
  const head = Buffer.alloc(4);
  head.writeInt32BE(size);
  return head;
};
const kafka = (name: string, say: () => Bytes): WrongAnswer => ({ server: "kafka", name, once: true, say: () => say() });

const isInfo = (frame: Frame): boolean => text(frame).startsWith("INFO ");
/** `from` 1: in place of the first PONG. From 2: once the client is connected. */
const nats = (name: string, from: 1 | 2, say: () => Bytes): WrongAnswer => ({
  server: "nats",
  name,
  once: true,
  say: (frame, at) => (isInfo(frame) || at < from ? null : say()),
});

export const wrongAnswers: readonly WrongAnswer[] = [
  redis("an array of 4294967296 values", () => [Buffer.from(`*4294967296${crlf}`)]),
  redis("arrays 200,000 deep", () => [Buffer.from(`*1${crlf}`.repeat(200_000))]),
  redis("a string of 1 GB", () => flood(`$1000000000${crlf}`)),
  {
    server: "redis",
    name: "OK to everything",
    once: false,
    // One for each answer: the parts of an answer are swallowed.
    say: (frame, at) => (at < greeting ? null : /^[*:$+_]/.test(text(frame)) ? [Buffer.from(`+OK${crlf}`)] : []),
  },
  {
    server: "redis",
    name: "a text in place of an entry's fields",
    once: true,
    say: (frame, at) =>
      at >= greeting && text(frame).startsWith("*") ? [Buffer.from(["*1", "*2", "$3", "1-1", "$3", "abc", ""].join(crlf))] : null,
  },
  kafka("an answer of 2 bytes", () => [Buffer.concat([sized(2), Buffer.alloc(2)])]),
  kafka("an answer of 2 GB", () => flood(sized(2 ** 31 - 1))),
  {
    server: "nats",
    name: "its first line byte by byte, for ever",
    once: true,
    async *say({ bytes }) {
      for (const byte of bytes.subarray(0, -2)) {
        yield Buffer.from([byte]);
        await sleep(200);
      }
    },
  },
  {
    server: "nats",
    name: "a max_payload of -1",
    once: false,
    say: (frame) => (isInfo(frame) ? [Buffer.from(text(frame).replace(/"max_payload":\d+/, '"max_payload":-1'), "latin1")] : null),
  },
  nats("a line without an end", 2, () => flood("MSG ")),
  nats("what is no NATS, with an escape sequence for the terminal", 1, () => [raw]),
];

/** Every connection is told it, until the line is clean. `told` counts those that have heard it out, or have ended. `most`: how many bytes of it one has taken. */
export function damageOfWrong({ server, name, say, once }: WrongAnswer): Damage & { readonly told: number; readonly most: number } {
  let [clean, told, most] = [false, 0, 0];
  return {
    through() {
      const frames = framingOf(server);
      let [at, silent] = [0, false];
      return async function* (chunk) {
        for (const frame of frames(chunk)) {
          if (silent) return;
          const instead = clean ? null : say(frame, at++);
          if (instead === null) {
            yield frame.bytes;
            continue;
          }
          silent = once;
          let taken = 0;
          try {
            for await (const piece of instead) {
              yield piece;
              most = Math.max(most, (taken += piece.length));
            }
          } finally {
            told += 1; // all of it, or as much as the process took
          }
        }
      };
    },
    on: (bad) => void (clean = !bad),
    get told() {
      return told;
    },
    get most() {
      return most;
    },
    get done() {
      return Array.from({ length: told }, (_, at) => `${at + 1} ${name}`);
    },
  };
}
