import { connect } from "node:net";

export type Resp = string | number | null | Error | readonly Resp[];

/** A Redis client of a few lines, for reading back what the real one wrote: strings come as Latin-1, so that each byte is a character. */
export async function resp(port: number, ...commands: readonly (readonly string[])[]): Promise<readonly Resp[]> {
  const socket = connect(port, "127.0.0.1");
  try {
    const encoded = commands.map((args) => `*${args.length}\r\n${args.map((arg) => `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`).join("")}`);
    socket.write(encoded.join(""));
    let text = "";
    for await (const chunk of socket) {
      text += (chunk as Buffer).toString("latin1");
      const replies = repliesIn(text, commands.length);
      if (replies !== null) return replies;
    }
    throw new Error("the server closed the connection");
  } finally {
    socket.destroy();
  }
}

function repliesIn(text: string, count: number): readonly Resp[] | null {
  let at = 0;
  const line = (): string => {
    const end = text.indexOf("\r\n", at);
    if (end < 0) throw new RangeError("more is to come");
    const found = text.slice(at, end);
    at = end + 2;
    return found;
  };
  const bulk = (length: number): string => {
    if (text.length < at + length + 2) throw new RangeError("more is to come");
    const found = text.slice(at, at + length);
    at += length + 2;
    return found;
  };
  const reply = (): Resp => {
    const head = line();
    const rest = head.slice(1);
    switch (head[0] ?? "") {
      case "+":
        return rest;
      case "-":
        return new Error(rest);
      case ":":
        return Number(rest);
      case "$":
        return rest === "-1" ? null : bulk(Number(rest));
      case "*":
        return rest === "-1" ? null : Array.from({ length: Number(rest) }, reply);
      default:
        throw new Error(`no reply begins with ${JSON.stringify(head)}`);
    }
  };
  try {
    return Array.from({ length: count }, reply);
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}
