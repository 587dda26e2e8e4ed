/** Strings of any kind come as bytes. */
export type Reply = Buffer | number | null | readonly Reply[];

/** An error reply of the server. Its first word is the protocol's code for the reason. */
export class RedisRefusal extends Error {
  readonly word: string;

  constructor(message: string) {
    super(message);
    this.name = "RedisRefusal";
    this.word = /^[A-Z]+(?= |$)/.exec(message)?.[0] ?? "ERR";
  }
}

/** Something that is no answer to what we asked, in words that follow the server's name. */
export class WrongAnswer extends Error {}

/** No answer to a command of ours is nested deeper. */
const mostDeep = 8;
/** Of a line: an error, a short text, a number or a length. */
const lineBytes = 64 * 1024;
/** What an item of an array takes in memory besides its content. It counts, since an array may consist of empty ones. */
export const itemBytes = 64;

const [cr, lf, plus, minus, colon, dollar, star] = [0x0d, 0x0a, 0x2b, 0x2d, 0x3a, 0x24, 0x2a] as const;

/**
 * Reads replies in version 2 of the protocol from a server that may send anything. What a server says of a length costs no memory before
 * the bytes come, and nesting costs no stack. The client's own parser has no bounds: it ends the process, or fills its memory.
 */
export class ReplyReader {
  readonly #taken: (reply: Reply | RedisRefusal) => void;
  /** How many bytes may still come; the owner sets it for each answer that it waits for. */
  room = 0;
  /** A line whose end has not come. */
  #rest: Buffer | null = null;
  /** A string that is coming with the end of its line, and how much of it is there. */
  #string: Buffer | null = null;
  #filled = 0;
  readonly #open: { readonly items: Reply[]; left: number }[] = [];

  constructor(taken: (reply: Reply | RedisRefusal) => void) {
    this.#taken = taken;
  }

  /** Calls `taken` for each reply that is whole. Throws a WrongAnswer, after which nothing more can be read. */
  read(chunk: Buffer): void {
    let bytes = chunk;
    let at = this.#string === null ? 0 : this.#fill(chunk, 0);
    if (this.#rest !== null) {
      bytes = Buffer.concat([this.#rest, chunk]);
      this.#rest = null;
    }
    while (at < bytes.length) {
      const end = endOf(bytes, at);
      if (end + 1 >= bytes.length) {
        if (bytes.length - at > lineBytes) throw new WrongAnswer("answered with a line that has no end");
        this.#spend(0); // nothing may come at all when no answer is awaited
        this.#rest = Buffer.from(bytes.subarray(at));
        return;
      }
      if (bytes[end + 1] !== lf) throw noProtocol();
      this.#spend(end + 2 - at);
      at = this.#line(bytes, at, end);
    }
  }

  /** Returns where it goes on. */
  #line(bytes: Buffer, at: number, end: number): number {
    const next = end + 2;
    switch (bytes[at]!) {
      case dollar: {
        const length = lengthAt(bytes, at + 1, end);
        if (length < 0) this.#value(null);
        else return this.#begin(bytes, next, length);
        return next;
      }
      case plus:
        this.#value(bytes.subarray(at + 1, end));
        return next;
      case colon:
        this.#value(numberAt(bytes, at + 1, end));
        return next;
      case minus:
        if (this.#open.length > 0) throw new WrongAnswer("answered with an error among other values");
        this.#taken(new RedisRefusal(bytes.toString("utf8", at + 1, end)));
        return next;
      case star: {
        const count = lengthAt(bytes, at + 1, end);
        if (count <= 0) this.#value(count < 0 ? null : []);
        else {
          this.#spend(count * itemBytes);
          if (this.#open.length === mostDeep) throw new WrongAnswer(`answered with arrays more than ${mostDeep} deep`);
          this.#open.push({ items: [], left: count });
        }
        return next;
      }
      default:
        throw noProtocol();
    }
  }

  #begin(bytes: Buffer, at: number, length: number): number {
    this.#spend(length + 2);
    const to = at + length + 2;
    if (to <= bytes.length) {
      if (bytes[to - 2] !== cr || bytes[to - 1] !== lf) throw noProtocol();
      this.#value(bytes.subarray(at, to - 2));
      return to;
    }
    this.#string = Buffer.allocUnsafe(length + 2);
    this.#filled = 0;
    return this.#fill(bytes, at);
  }

  /** Returns where it goes on. */
  #fill(bytes: Buffer, at: number): number {
    const string = this.#string!;
    const copied = bytes.copy(string, this.#filled, at);
    this.#filled += copied;
    if (this.#filled === string.length) {
      this.#string = null;
      const length = string.length - 2;
      if (string[length] !== cr || string[length + 1] !== lf) throw noProtocol();
      this.#value(string.subarray(0, length));
    }
    return at + copied;
  }

  #value(value: Reply): void {
    let whole = value;
    for (;;) {
      const array = this.#open.at(-1);
      if (array === undefined) return this.#taken(whole);
      array.items.push(whole);
      array.left -= 1;
      if (array.left > 0) return;
      this.#open.pop();
      whole = array.items;
    }
  }

  #spend(bytes: number): void {
    if (this.room === 0) throw new WrongAnswer("answered what it was not asked");
    if (bytes > this.room) throw new WrongAnswer("answered with more than it was asked for");
    this.room -= bytes;
  }
}

const noProtocol = (): WrongAnswer => new WrongAnswer("answered in something else than Redis's protocol");

/** Where the line's \r is; beyond the bytes when it has not come. */
function endOf(bytes: Buffer, from: number): number {
  const most = Math.min(bytes.length, from + 40);
  for (let at = from; at < most; at++) if (bytes[at] === cr) return at;
  const found = bytes.indexOf(cr, most);
  return found < 0 ? bytes.length : found;
}

/** -1 for nothing. */
function lengthAt(bytes: Buffer, from: number, end: number): number {
  if (end - from === 2 && bytes[from] === minus && bytes[from + 1] === 0x31) return -1;
  let value = 0;
  for (let at = from; at < end; at++) {
    const digit = bytes[at]! - 0x30;
    if (!(digit >= 0 && digit <= 9)) throw noProtocol();
    value = value * 10 + digit;
  }
  if (end === from || value > Number.MAX_SAFE_INTEGER) throw noProtocol();
  return value;
}

function numberAt(bytes: Buffer, from: number, end: number): number {
  const text = bytes.toString("latin1", from, Math.min(end, from + 21));
  if (!/^[+-]?\d+$/.test(text)) throw noProtocol();
  return Number(text);
}
