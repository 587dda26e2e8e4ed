import type { Duplex } from "node:stream";
import { isMisread } from "../kit/misread.ts";

/** What of pg's connection is guarded: private, since pg 7. */
interface Wire {
  attachListeners?(stream: Duplex): void;
  emit(event: "error", error: Error): unknown;
  readonly stream: Duplex;
}

/** A client whose connection is closed when what it receives cannot be read, or is no greeting: pg leaves the socket open. */
export function guarded<C extends new (...args: never[]) => object>(client: C): C {
  const Client = client as unknown as new (...args: unknown[]) => { readonly connection: Wire; connect(connected?: Connected): unknown };
  return class extends Client {
    constructor(...args: unknown[]) {
      super(...args);
      guardReading(this.connection);
    }
    // The pool, the only caller, gives a callback.
    override connect(connected?: Connected): unknown {
      return super.connect((error, ...rest) => {
        if (error) this.connection.stream.destroy();
        connected?.(error, ...rest);
      });
    }
  } as unknown as C;
}

type Connected = (error: Error | null | undefined, ...rest: readonly unknown[]) => void;

/** The server has sent what PostgreSQL does not send. Its connection is closed. */
export class WrongMessage extends Error {
  constructor(cause?: unknown) {
    super("it sent what is not PostgreSQL's protocol", { cause });
    this.name = "WrongMessage";
  }
}

/** What pg throws at an answer that is whole and wrong says nothing to a user. */
export async function readable<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    throw isMisread(error) ? new WrongMessage(error) : error;
  }
}

/** Of a message's type, and of its length, which counts itself. */
const [typeBytes, lengthBytes] = [1, 4];
const headBytes = typeBytes + lengthBytes;
/** PostgreSQL itself makes no larger ones. */
const maxMessage = 2 ** 30;
/** The types that pg reads. */
const types = new Set(Buffer.from("123ACDEGHIKNRSTWZcdnst"));
const lists = new Set(Buffer.from("EN"));

/**
 * Hands on whole messages only. pg believes any length, and what it throws while it reads would end the process. It reads on for ever in an
 * error or a notice whose list of fields has no end.
 */
export function createFraming(handOn: (messages: Buffer) => void): (chunk: Buffer) => void {
  let parts: Buffer[] = [];
  let bytes = 0;
  /** How many there must be before it is worth looking again. */
  let wanted = headBytes;
  return (chunk) => {
    parts.push(chunk);
    bytes += chunk.length;
    if (bytes < wanted) return;
    const all = parts.length === 1 ? chunk : Buffer.concat(parts);
    let at = 0;
    wanted = headBytes;
    while (all.length - at >= headBytes) {
      const length = all.readUInt32BE(at + typeBytes);
      if (!types.has(all[at]!) || length < lengthBytes || length > maxMessage) throw new WrongMessage();
      const end = at + typeBytes + length;
      if (end > all.length) {
        wanted = end - at;
        break;
      }
      if (lists.has(all[at]!) && !endsList(all, at + headBytes, end)) throw new WrongMessage();
      at = end;
    }
    parts = at === all.length ? [] : [all.subarray(at)];
    bytes = all.length - at;
    if (at > 0) handOn(at === all.length ? all : all.subarray(0, at));
  };
}

/** A list ends with an empty field, behind the zero that ends the last one. */
const endsList = (all: Buffer, from: number, end: number): boolean =>
  end > from && all[end - 1] === 0 && (end - from === 1 || all[end - 2] === 0);

/** Ends a connection whose answers cannot be read, before or after it is encrypted. */
function guardReading(connection: Wire): void {
  const attach = connection.attachListeners?.bind(connection);
  if (attach === undefined) return;
  connection.attachListeners = (stream) => {
    attach(stream);
    const readers = stream.listeners("data") as ((messages: Buffer) => void)[];
    const take = createFraming((messages) => readers.forEach((read) => read(messages)));
    let over = false;
    stream.removeAllListeners("data").on("data", (chunk: Buffer) => {
      if (over) return;
      try {
        take(chunk);
      } catch {
        over = true; // in the words of some buffer
        connection.emit("error", new WrongMessage());
        stream.destroy();
      }
    });
  };
}
