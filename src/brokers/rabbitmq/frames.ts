import { WaybillError } from "../../core/errors.ts";
import { propertiesOf } from "./tables.ts";

/** The parts of the client's connection that read frames; see docs/decisions/0020. */
interface Reading {
  recvFrame(): unknown;
  rest: Buffer;
  readonly stream: { emit(event: "readable"): boolean };
  recvSinceLastCheck: boolean;
}

/** The reading of one connection. */
interface Frames {
  /** Nothing more is read: what the server sends stays in its buffers, and then in its queues. */
  pause(): void;
  resume(): void;
}

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
  reading.recvFrame = () => {
    if (paused) return false;
    const { rest } = reading;
    if (rest.length < frameHead + contentHead || rest[0] !== headerFrame) return receive();
    const end = frameHead + rest.readUInt32BE(3);
    if (rest.length <= end || rest.readUInt16BE(frameHead) !== basicClass) return receive();
    reading.rest = rest.subarray(end + 1);
    return {
      id: basicClass,
      channel: rest.readUInt16BE(1),
      size: Number(rest.readBigUInt64BE(frameHead + 4)),
      fields: propertiesOf(rest.subarray(frameHead + contentHead, end)),
    };
  };
  // A server that we do not read, while paused, is not silent. Whether it is alive shows in what we send to it.
  let heard = reading.recvSinceLastCheck;
  Object.defineProperty(reading, "recvSinceLastCheck", {
    get: () => paused || heard,
    set: (value: boolean) => void (heard = value),
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
