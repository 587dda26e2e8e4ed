import { lsnOf } from "./lsn.ts";

/** What a client sends while the log streams. */
const frame = (type: string, body: Buffer): Buffer => {
  const head = Buffer.alloc(5);
  head.write(type, "latin1");
  head.writeUInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
};

export const query = (text: string): Buffer => frame("Q", Buffer.from(`${text}\0`));
export const copyDone = frame("c", Buffer.alloc(0));
export const terminate = frame("X", Buffer.alloc(0));

const epoch2000 = 946_684_800_000;

/** All three positions of a standby status are the confirmed one: the server forgets its log up to there. */
export function standbyStatus(confirmed: string, nowMs: number, ask: boolean): Buffer {
  const body = Buffer.alloc(34);
  body.write("r", "latin1");
  for (const at of [1, 9, 17]) body.writeBigUInt64BE(lsnOf(confirmed), at);
  body.writeBigInt64BE(BigInt(Math.floor(nowMs) - epoch2000) * 1000n, 25);
  body[33] = ask ? 1 : 0;
  return frame("d", body);
}

/** An error or a notice of the server's, with the fields that the driver's errors have. */
export class ServerSaid extends Error {
  readonly severity: string;
  readonly code: string;
  /** The server's source file that says it: unlike the message, it is in no language. */
  readonly file: string;

  constructor(bytes: Buffer, from: number, to: number) {
    const fields = new Map<string, string>();
    for (const field of bytes.toString("utf8", from, to).split("\0")) if (field !== "") fields.set(field[0]!, field.slice(1));
    const [message, detail] = [fields.get("M") ?? "no message", fields.get("D")];
    super(detail === undefined ? message : `${message}: ${detail}`);
    this.name = "ServerSaid";
    this.severity = fields.get("V") ?? fields.get("S") ?? "";
    this.code = fields.get("C") ?? "";
    this.file = fields.get("F") ?? "";
  }
}
