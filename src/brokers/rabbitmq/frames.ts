import { WaybillError } from "../../core/errors.ts";
import { propertiesOf } from "./tables.ts";

/** The parts of the client's connection that read frames; see docs/decisions/0020. */
interface Reading {
  recvFrame(): unknown;
  rest: Buffer;
  readonly stream: { emit(event: "readable"): boolean; readonly bytesRead: number };
  recvSinceLastCheck: boolean;
}

/** The reading of one connection. */
interface Frames {
  /** Nothing more is read: what the server sends stays in its buffers, and then in its queues. */
  pause(): void;
  resume(): void;
}

/** More than the heartbeats of one interval: so many bytes are the progress of a large frame on a slow link. */
const progressBytes = 64;
const [headerFrame, basicClass] = [2, 60];
const [frameHead, contentHead] = [7, 12];

/**
 * Replaces the client's decoder of message properties, which overflows the stack on tables that the server carries, with a bounded one. The
 * client calls `recvFrame` for each frame, and `recvFrame` calls itself after it has read more: every whole header frame comes here first.
 */
export function tapFrames(connection: object): Frames {
  const reading = connection as Reading;
  if (typeof reading.recvFrame !== "function" || !Buffer.isBuffer(reading.rest) || typeof reading.recvSinceLastCheck !== "boolean")
    throw new WaybillError("DRIVER_UNFIT", "this version of amqplib reads frames in another way: use 2.3 or later of 2.x");
  const receive = reading.recvFrame.bind(reading);
  let paused = false;
  /** By channel, how many bytes of a message are still to come. */
  const unfinished = new Map<number, number>();
  let progress = false;
  const next = (): unknown => {
    const { rest } = reading;
    if (rest.length < frameHead + contentHead || rest[0] !== headerFrame) return receive();
    const end = frameHead + rest.readUInt32BE(3);
    if (rest.length <= end || rest.readUInt16BE(frameHead) !== basicClass) return receive();
    reading.rest = rest.subarray(end + 1);
    const [channel, size] = [rest.readUInt16BE(1), Number(rest.readBigUInt64BE(frameHead + 4))];
    unfinished.set(channel, size);
    return { id: basicClass, channel, size, fields: propertiesOf(rest.subarray(frameHead + contentHead, end)) };
  };
  /** The client's own `recvFrame` calls ours again after it has read more. Only the outermost call counts, so each frame counts once. */
  let depth = 0;
  reading.recvFrame = () => {
    if (paused) return false;
    let frame: { readonly channel: number; readonly content?: Buffer } | false;
    depth += 1;
    try {
      frame = next() as typeof frame;
    } finally {
      depth -= 1;
    }
    if (frame === false || depth > 0) return frame;
    if (frame.content !== undefined) {
      progress = true;
      unfinished.set(frame.channel, (unfinished.get(frame.channel) ?? 0) - frame.content.length);
    }
    if ((unfinished.get(frame.channel) ?? 1) <= 0) unfinished.delete(frame.channel);
    if (unfinished.size === 0) progress = true;
    return frame;
  };
  // The client asks in each interval whether bytes came. Behind a damaged length, heartbeats are bytes of a frame that never ends, or frames
  // beside a message that never ends: only whole frames count, with no message begun, or more bytes than heartbeats have. A server that we
  // do not read, while paused, is not silent: whether it is alive shows in what we send to it.
  let before = reading.stream.bytesRead;
  Object.defineProperty(reading, "recvSinceLastCheck", {
    get: () => paused || progress || reading.stream.bytesRead - before > progressBytes,
    set(value: boolean) {
      if (value) return;
      progress = false;
      before = reading.stream.bytesRead;
    },
  });
  return {
    pause: () => void (paused = true),
    resume() {
      if (!paused) return;
      paused = false;
      reading.stream.emit("readable");
    },
  };
}
