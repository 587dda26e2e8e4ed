/** What of a connection of mysql2's pool is guarded. The parser is private, and the same before and after the connection is encrypted. */
interface Wire {
  on(event: "error" | "warn", listener: () => void): unknown;
  readonly packetParser?: { onPacket(packet: unknown): void };
  readonly stream?: { destroy(error?: Error): unknown };
}

/** The server has sent what MySQL does not send. */
export class WrongPacket extends Error {
  readonly fatal = true;

  constructor(cause?: unknown) {
    super(unread, { cause });
    this.name = "WrongPacket";
  }
}

export const unread = "it sent what is not MySQL's protocol";

/**
 * Ends a connection whose answers cannot be read. mysql2 throws some of what it finds inside the socket's event, and emits a second error
 * when the pool's listener is gone: either would end the process. It takes a packet that is out of order for the answer that it waits for.
 */
export function guardReading(connection: Wire): void {
  const { packetParser: parser } = connection;
  let over = false;
  const end = (cause?: unknown): void => {
    if (over) return;
    over = true;
    connection.stream?.destroy(new WrongPacket(cause));
  };
  connection.on("error", () => undefined);
  connection.on("warn", () => end());
  if (typeof parser?.onPacket !== "function") return;
  const read = parser.onPacket.bind(parser);
  parser.onPacket = (packet) => {
    if (over) return;
    try {
      read(packet);
    } catch (error) {
      end(error);
    }
  };
}

/** What mysql2 says when it stumbles over an answer. Its own errors have a code, and the server's have a number. */
export function isUnread(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof WrongPacket || error instanceof TypeError || error instanceof RangeError || error instanceof SyntaxError)
    return true;
  const { code, errno, message } = error as { code?: unknown; errno?: unknown; message: string };
  if (code === "PROTOCOL_UNEXPECTED_PACKET") return true;
  return errno === undefined && code === undefined && /^(Should not reach here|Encoding not recognized|Unexpected)/.test(message);
}
