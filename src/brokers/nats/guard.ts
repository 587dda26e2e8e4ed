/** What of the client is guarded: private fields, except `dialLoop`. */
export interface Guarded {
  prepare(): unknown;
  dialLoop(): Promise<void>;
  readonly connectError?: (error: Error) => void;
  readonly parser: {
    parse(bytes: Uint8Array): void;
    readonly ma?: { readonly size: number };
    readonly argBuf?: { readonly length: number };
  };
  readonly transport: {
    readonly yields?: Uint8Array[];
    connect(...all: readonly unknown[]): Promise<void>;
    close(error: Error): Promise<void>;
    discard(): void;
  };
}

/** NATS itself allows no larger messages. A server can announce any size, and the client would take it. */
const maxMessage = 64 * 1024 * 1024 + 1024 * 1024;
/** No command of a server is longer; INFO is the longest. */
export const maxLine = 65_536;

const tooLong = new Error("it sent a line or a message that is longer than NATS allows");
const notNats = new Error("it sent what is not NATS");

/**
 * Connects. The client would print what it cannot read, raw, to the terminal, take messages of any size, and keep the socket of a server
 * that never finishes its first line. Here such a connection ends, with an error that has none of the server's bytes.
 */
export async function connectGuarded(protocol: Guarded): Promise<void> {
  const prepare = protocol.prepare.bind(protocol);
  // The client makes its parser and its transport here, before it opens the socket.
  protocol.prepare = () => {
    const pong = prepare();
    guardReading(protocol);
    guardFirstLine(protocol.transport);
    return pong;
  };
  try {
    await protocol.dialLoop();
  } catch (error) {
    protocol.transport.discard();
    throw error;
  }
}

function guardReading(protocol: Guarded): void {
  const { parser, transport } = protocol;
  const parse = parser.parse.bind(parser);
  let over = false;
  const end = (error: Error): void => {
    over = true;
    protocol.connectError?.(error);
    void transport.close(error);
  };
  parser.parse = (bytes) => {
    if (over) return;
    try {
      parse(bytes);
    } catch {
      return end(notNats);
    }
    if ((parser.ma?.size ?? 0) > maxMessage || (parser.argBuf?.length ?? 0) > maxLine) end(tooLong);
  };
}

/** Until the first line is whole, the transport collects what comes. */
function guardFirstLine(transport: Guarded["transport"]): void {
  const chunks = transport.yields;
  if (chunks === undefined) return;
  let bytes = 0;
  chunks.push = (...more) => {
    for (const { byteLength } of more) bytes += byteLength;
    if (bytes > maxLine) {
      transport.discard();
      return 0;
    }
    return Array.prototype.push.apply(chunks, more);
  };
  const connect = transport.connect.bind(transport);
  transport.connect = async (...all) => {
    await connect(...all);
    Reflect.deleteProperty(chunks, "push");
  };
}
