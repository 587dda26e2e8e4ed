import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import type { Passage } from "../../support/tcp-proxy.ts";
import { chanceOf, type Chance } from "../chance.ts";
import { framingOf, type Frame, type LineName } from "./frames.ts";
import { lies, nonsense } from "./lies.ts";

/** `line`: real answers on a bad line. `fake`: a server that answers anything. */
export type Kind = "line" | "fake";

/** What a seed does to the bytes from a server. */
export interface Damage {
  /** For one more connection. */
  through(): Passage;
  on(bad: boolean): void;
  /** What was done so far, by kind. */
  readonly done: ReadonlyMap<string, number>;
}

/** When thrown, resets the connection. */
class Cut extends Error {}

/** What arrives in place of one frame. */
type Act = (frame: Frame, chance: Chance, name: LineName) => AsyncIterable<Buffer> | Iterable<Buffer>;

/** What a line does, without a byte that could be taken for another answer. */
const onLine: Readonly<Record<string, Act>> = {
  async *cut({ bytes }, chance) {
    yield bytes.subarray(0, chance.below(bytes.length + 1));
    await sleep(5); // what was written arrives first
    throw new Cut();
  },
  async *delay({ bytes }, chance) {
    await sleep(chance.pick([1, 20, 100, 700, 1_800]));
    yield bytes;
  },
  async *dribble({ bytes }, chance) {
    for (let at = 0; at < bytes.length;) {
      yield bytes.subarray(at, (at += 1 + chance.below(at > 400 ? 300 : 5)));
      if (chance.is(0.1)) await sleep(chance.below(10));
      else await turn();
    }
  },
  *half({ bytes }, chance) {
    yield bytes.subarray(0, chance.below(bytes.length));
  },
  *silence() {
    // nothing
  },
  *"wrong head"({ bytes, head }, chance, name) {
    yield* [chance.pick(wrongHeads[name](bytes.subarray(0, head))), bytes.subarray(head)];
  },
  *noise({ bytes }, chance) {
    yield Buffer.from(Array.from({ length: 1 + chance.below(64) }, () => 0x80 + chance.below(0x80)));
    yield bytes;
  },
};
/** After these, nothing arrives on the connection any more. */
const ending = new Set(["half", "silence"]);

const changed = (head: Buffer, change: (copy: Buffer) => void): Buffer => {
  const copy = Buffer.from(head);
  change(copy);
  return copy;
};
const int32 = [0, 1, 3, 2 ** 24, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1];

/** Heads that the protocol does not have. */
const wrongHeads: Readonly<Record<LineName, (head: Buffer) => readonly Buffer[]>> = {
  postgres: (head) => [
    ...[0, 1, 0x80, 0xff].map((type) => changed(head, (copy) => copy.writeUInt8(type))),
    ...int32.map((length) => changed(head, (copy) => copy.writeUInt32BE(length, 1))),
  ],
  mariadb: (head) => [
    ...[0xffffff, 0xfffffe].map((length) => changed(head, (copy) => copy.writeUIntLE(length, 0, 3))),
    ...[0x55, 0xaa].map((bits) => changed(head, (copy) => copy.writeUInt8(copy[3]! ^ bits, 3))),
  ],
  kafka: (head) => [
    ...int32.map((length) => changed(head, (copy) => copy.writeUInt32BE(length))),
    changed(head, (copy) => copy.writeUInt32BE(0x7ffffff7, 4)),
  ],
  rabbitmq: (head) => [
    ...[0, 4, 7, 0xff].map((type) => changed(head, (copy) => copy.writeUInt8(type))),
    ...int32.map((length) => changed(head, (copy) => copy.writeUInt32BE(length, 3))),
    changed(head, (copy) => copy.writeUInt16BE(0xfff0, 1)),
  ],
  nats: (head) => wrongLines(head),
  redis: (head) => wrongLines(head),
};
function wrongLines(head: Buffer): readonly Buffer[] {
  const line = head.toString("latin1");
  return [
    Buffer.concat([Buffer.from([0x81]), head]),
    Buffer.concat([head.subarray(0, -2), Buffer.from("\xff\r\n", "latin1")]),
    ...(/\d\r\n$/.test(line) ? ["99999999999999999999", "2147483647", "-7", "NaN"] : []).map((number) =>
      Buffer.from(line.replace(/\d+\r\n$/, `${number}\r\n`), "latin1"),
    ),
  ];
}

const acts: Readonly<Record<Kind, Readonly<Record<string, Act>>>> = { line: onLine, fake: { ...onLine, ...lies } };

export function damageOf(seed: number, name: LineName, kind: Kind): Damage {
  const done = new Map<string, number>();
  let [clean, connections] = [false, 0];
  return {
    through() {
      const chance = chanceOf(seed, `${name} ${kind} ${++connections}`);
      const odds = chance.pick([0.01, 0.04, 0.15, 0.5]);
      const names = Object.keys(acts[kind]);
      // Some connections have one trouble only, so that it meets every answer.
      const pick = chance.is(0.4)
        ? (
            (only) => () =>
              only
          )(chance.pick(names))
        : () => chance.pick(names);
      const gibberish = kind === "fake" && chance.is(0.15) ? nonsense(chance) : null;
      const frames = framingOf(name);
      const note = (what: string): void => void done.set(what, (done.get(what) ?? 0) + 1);
      let silent = false; // for good: what follows is lost, and the connection stays open
      return async function* (chunk) {
        for (const frame of frames(chunk)) {
          if (silent) return;
          if (clean) {
            yield frame.bytes;
            continue;
          }
          if (gibberish !== null) {
            note("nonsense");
            silent = true;
            yield* gibberish;
            return;
          }
          if (!chance.is(odds)) {
            yield frame.bytes;
            continue;
          }
          const what = pick();
          note(what);
          silent = ending.has(what);
          yield* acts[kind][what]!(frame, chance, name);
        }
      };
    },
    on: (bad) => void (clean = !bad),
    done,
  };
}
