import type { Outgoing } from "../../contracts/sink.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { ByteWriter } from "../kit/bytes.ts";
import { writeHead } from "./message.ts";

/** Where the messages of one write go. Each one's answer comes to the inbox, under the message's number. */
export interface Heading {
  readonly subject: string;
  readonly stream: string;
  readonly inbox: string;
  /** The number of the first message. */
  readonly number: number;
  /** The largest that the server takes, headers included. */
  readonly maxBytes: number;
}

/** What a message takes besides its data, as a first guess. */
const headGuess = 1_024;

/** One buffer with a whole HPUB for each message. `unfit` gets the number of one that cannot be sent; the buffer has no byte of it. */
export function framesOf(heading: Heading, messages: readonly Outgoing[], unfit: (number: number, error: Error) => void): Uint8Array {
  let guess = 0;
  for (const { envelope } of messages) guess += envelope.data.byteLength + headGuess;
  const writer = new ByteWriter(guess);
  const command = Buffer.from(`HPUB ${heading.subject} ${heading.inbox}.`);
  const start = Buffer.from(`NATS/1.0\r\nNats-Expected-Stream: ${heading.stream}\r\n`);
  messages.forEach((message, i) => {
    const number = heading.number + i;
    const before = writer.at;
    try {
      writer.data(command);
      writer.decimal(number);
      writeMessage(writer, start, message, heading.maxBytes);
    } catch (error) {
      writer.at = before;
      unfit(number, asError(error));
    }
  });
  return writer.written();
}

/** The sizes, the headers and the data. */
function writeMessage(writer: ByteWriter, start: Uint8Array, message: Outgoing, maxBytes: number): void {
  const { data, id } = message.envelope;
  // The sizes come before the headers that they count. So the headers are written first, and moved when the sizes are inserted.
  const sizesAt = writer.at;
  writer.data(start);
  writeHead(writer, message);
  writer.crlf();
  const headBytes = writer.at - sizesAt;
  const bytes = headBytes + data.byteLength;
  if (bytes > maxBytes)
    throw new WaybillError("MESSAGE_TOO_LARGE", `event ${id} takes ${bytes} bytes with its headers, and the server takes ${maxBytes}`);
  writer.insert(sizesAt, ` ${headBytes} ${bytes}\r\n`);
  writer.data(data);
  writer.crlf();
}
