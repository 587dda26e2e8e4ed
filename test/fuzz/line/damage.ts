import { setTimeout as sleep, setImmediate as turn } from "node:timers/promises";
import type { Passage } from "../../support/tcp-proxy.ts";
import { chanceOf, type Chance } from "../chance.ts";
import { framingOf, type Frame, type LineName } from "./frames.ts";
import { lies, nonsense } from "./lies.ts";

/** `line`: real answers on a bad line. `fake`: a server that answers anything. */
export type Kind = "line" | "fake";

/**
 * One damage, such as "3.17 a short body": to the 17th frame of the third connection. A connection that says nothing but nonsense has the
 * frame 0. What it does to the bytes follows from its seed and these words, so one of them can be done without the others.
 */
export type Harm = string;

/** What a seed does to the bytes from a server. */
export interface Damage {
  /** For one more connection. */
  through(): Passage;
  on(bad: boolean): void;
  /** What was done so far, in this order. */
  readonly done: readonly Harm[];
}

/** The same in few words: what was done how many times. */
export function summaryOf(done: readonly Harm[]): string {
  const times = new Map<string, number>();
  for (const harm of done) times.set(nameOf(harm), (times.get(nameOf(harm)) ?? 0) + 1);
  return [...times].map(([what, many]) => `${what} ${many}`).join(", ");
}

const nameOf = (harm: Harm): string => harm.slice(harm.indexOf(" ") + 1);

/** When thrown, resets the connection. */
class Cut extends Error {}

/** What arrives in place of one frame. */
type Act = (frame: Frame, chance: Chance, name: LineName, earlier: readonly Frame[]) => AsyncIterable<Buffer> | Iterable<Buffer>;

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

/** How many earlier answers a lie can repeat. */
const remembered = 30;

/** All that a seed does; or only these of it. */
export function damageOf(seed: number, name: LineName, kind: Kind, only?: readonly Harm[]): Damage {
  const done: Harm[] = [];
  let [clean, connections] = [false, 0];
  return {
    through() {
      const connection = ++connections;
      const picks = only === undefined ? picked(seed, name, kind, connection) : chosen(only, connection);
      const frames = framingOf(name);
      const earlier: Frame[] = [];
      let [at, silent] = [0, false]; // for good: what follows is lost, and the connection stays open
      const does = (frame: number, what: string): Chance => {
        done.push(`${connection}.${frame} ${what}`);
        return chanceOf(seed, `${name} ${kind} ${connection}.${frame} ${what}`);
      };
      return async function* (chunk) {
        for (const frame of frames(chunk)) {
          at += 1;
          const before = earlier.slice();
          if (earlier.push(frame) > remembered) earlier.shift();
          if (silent) return;
          if (clean) {
            yield frame.bytes;
            continue;
          }
          if (picks.nonsense) {
            silent = true;
            yield* nonsense(does(0, "nonsense"));
            return;
          }
          const what = picks.next(at);
          if (what === null) {
            yield frame.bytes;
            continue;
          }
          silent = ending.has(what);
          yield* acts[kind][what]!(frame, does(at, what), name, before);
        }
      };
    },
    on: (bad) => void (clean = !bad),
    done,
  };
}

/** What becomes of a connection's frames: null, where they pass. */
interface Picks {
  readonly nonsense: boolean;
  next(frame: number): string | null;
}

function picked(seed: number, name: LineName, kind: Kind, connection: number): Picks {
  const chance = chanceOf(seed, `${name} ${kind} ${connection}`);
  const odds = chance.pick([0.01, 0.04, 0.15, 0.5]);
  const names = Object.keys(acts[kind]);
  // Some connections have one trouble only, so that it meets every answer.
  const only = chance.is(0.4) ? chance.pick(names) : null;
  return {
    nonsense: kind === "fake" && chance.is(0.15),
    next: () => (chance.is(odds) ? (only ?? chance.pick(names)) : null),
  };
}

function chosen(only: readonly Harm[], connection: number): Picks {
  const own = new Map(
    only.flatMap((harm) => {
      const [where, at] = harm.split(/[. ]/, 2).map(Number);
      return where === connection ? [[at!, nameOf(harm)] as const] : [];
    }),
  );
  return { nonsense: own.has(0), next: (frame) => own.get(frame) ?? null };
}
