import { ascii, type ByteWriter } from "../kit/bytes.ts";

type Argument = string | Uint8Array;
/** A command's name and its arguments. */
export type RedisCommand = readonly [name: string, ...args: Argument[]];

/** From this length on, a text is measured before it is written: that is cheaper than an ASCII loop that may fail. */
const longText = 256;

/** Writes a text as the protocol has it, with its length in front. Returns how many bytes the text has. */
export function writeText(writer: ByteWriter, text: string): number {
  const before = writer.at;
  if (text.length < longText) {
    writeLength(writer, text.length);
    if (writer.only(ascii, text)) {
      writer.crlf();
      return text.length;
    }
    writer.at = before;
  }
  const bytes = Buffer.byteLength(text);
  writeLength(writer, bytes);
  writer.text(text);
  writer.crlf();
  return bytes;
}

export function writeData(writer: ByteWriter, data: Uint8Array): void {
  writeLength(writer, data.byteLength);
  writer.data(data);
  writer.crlf();
}

function writeLength(writer: ByteWriter, bytes: number): void {
  writer.text("$");
  writer.decimal(bytes);
  writer.crlf();
}

/** Inserts the number of arguments before those that were written from `from` on. */
export const closeCommand = (writer: ByteWriter, from: number, args: number): void => writer.insert(from, `*${args}\r\n`);

export function writeCommand(writer: ByteWriter, command: RedisCommand): void {
  const from = writer.at;
  for (const argument of command) {
    if (typeof argument === "string") writeText(writer, argument);
    else writeData(writer, argument);
  }
  closeCommand(writer, from, command.length);
}
