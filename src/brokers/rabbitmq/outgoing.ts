import type { Outgoing } from "../../contracts/sink.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { ByteWriter } from "../kit/bytes.ts";
import { writeProperties, writeShort } from "./message.ts";

/** Where the messages of one write go. */
export interface PublishFrames {
  readonly channel: number;
  readonly exchange: string;
  readonly topic: string;
  /** `frameMax`: the largest frame that the server takes. `maxBytes`: the largest message that is sent, headers included. */
  readonly frameMax: number;
  readonly maxBytes: number;
}

const [methodFrame, headerFrame, bodyFrame] = [1, 2, 3];
const [basicClass, publishMethod] = [60, 40];
const mandatory = 1;
const [frameHead, frameEnd] = [7, 0xce];
/** What a message takes besides its data, as a first guess. */
const headGuess = 1_024;

/** One buffer with the frames of all messages. `unfit` gets the place of a message that cannot be sent; the buffer has no byte of it. */
export function framesOf(route: PublishFrames, messages: readonly Outgoing[], unfit: (place: number, error: Error) => void): Uint8Array {
  let guess = 0;
  for (const { envelope } of messages) guess += envelope.data.byteLength + headGuess;
  const writer = new ByteWriter(guess);
  const publish = publishOf(route);
  messages.forEach((message, place) => {
    const before = writer.at;
    try {
      writer.data(publish);
      writeContent(writer, route, message);
    } catch (error) {
      writer.at = before;
      unfit(place, asError(error));
    }
  });
  return writer.written();
}

/** The method frame, which is the same for all messages. */
function publishOf({ channel, exchange, topic }: PublishFrames): Uint8Array {
  const writer = new ByteWriter(64);
  const from = beginFrame(writer, methodFrame, channel);
  writer.uint(basicClass, 2);
  writer.uint(publishMethod, 2);
  writer.uint(0, 2);
  writeShort(writer, exchange);
  writeShort(writer, topic);
  writer.uint(mandatory, 1);
  endFrame(writer, from);
  return writer.written();
}

function writeContent(writer: ByteWriter, { channel, frameMax, maxBytes }: PublishFrames, message: Outgoing): void {
  const { data, id } = message.envelope;
  const from = beginFrame(writer, headerFrame, channel);
  writer.uint(basicClass, 2);
  writer.uint(0, 2);
  writer.uint(data.byteLength, 8);
  const bytes = writeProperties(writer, message) + data.byteLength;
  endFrame(writer, from);
  if (bytes > maxBytes)
    throw new WaybillError(
      "MESSAGE_TOO_LARGE",
      `event ${id} takes ${bytes} bytes with its headers, and the option maxBytes takes ${maxBytes}`,
    );
  const most = frameMax - frameHead - 1;
  for (let at = 0; at < data.byteLength; at += most) {
    const body = beginFrame(writer, bodyFrame, channel);
    writer.data(data.byteLength <= most ? data : data.subarray(at, at + most));
    endFrame(writer, body);
  }
}

function beginFrame(writer: ByteWriter, type: number, channel: number): number {
  writer.uint(type, 1);
  writer.uint(channel, 2);
  writer.uint(0, 4);
  return writer.at;
}

function endFrame(writer: ByteWriter, from: number): void {
  writer.bytes.writeUInt32BE(writer.at - from, from - 4);
  writer.uint(frameEnd, 1);
}
