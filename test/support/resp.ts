import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { connect as connectSecurely } from "node:tls";

/** Strings come as Latin-1, so that each byte is a character. */
export type Resp = string | number | null | Error | readonly Resp[];

const encode = (args: readonly string[]): string =>
  `*${args.length}\r\n${args.map((arg) => `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`).join("")}`;

/** A Redis client of a few lines, for reading back what the real one wrote. */
export function resp(port: number, ...commands: readonly (readonly string[])[]): Promise<readonly Resp[]> {
  return converse(connect(port, "127.0.0.1"), commands);
}

/** The same at a URL, with its password and in its database; rejects when a command is refused. */
export async function respAt(url: string, ...commands: readonly (readonly string[])[]): Promise<readonly Resp[]> {
  const { protocol, hostname: host, port, username, password, pathname } = new URL(url);
  const at = { host, port: Number(port || 6379), servername: host };
  const who = [username || "default", password].map(decodeURIComponent);
  const first = [...(password === "" ? [] : [["AUTH", ...who]]), ["SELECT", pathname.slice(1) || "0"]];
  const replies = await converse(protocol === "rediss:" ? connectSecurely(at) : connect(at), [...first, ...commands]);
  for (const reply of replies) if (reply instanceof Error) throw reply;
  return replies.slice(first.length);
}

async function converse(socket: Socket, commands: readonly (readonly string[])[]): Promise<readonly Resp[]> {
  try {
    socket.write(commands.map(encode).join(""));
    const chunks: Buffer[] = [];
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      const { replies } = parse(Buffer.concat(chunks).toString("latin1"));
      if (replies.length >= commands.length) return replies;
    }
    throw new Error("the server closed the connection");
  } finally {
    socket.destroy();
  }
}

/** What is there in full, and what is left over. */
function parse(text: string): { readonly replies: readonly Resp[]; readonly rest: string } {
  const replies: Resp[] = [];
  let at = 0;
  const upTo = (end: number): string => {
    if (end < 0 || text.length < end + 2) throw new RangeError("more is to come");
    const found = text.slice(at, end);
    at = end + 2;
    return found;
  };
  const value = (): Resp => {
    const [kind = "", ...rest] = upTo(text.indexOf("\r\n", at));
    const head = rest.join("");
    switch (kind) {
      case "+":
        return head;
      case "-":
        return new Error(head);
      case ":":
        return Number(head);
      case "$":
        return head === "-1" ? null : upTo(at + Number(head));
      case "*":
        return head === "-1" ? null : Array.from({ length: Number(head) }, value);
      default:
        throw new Error(`no value begins with ${JSON.stringify(kind)}`);
    }
  };
  for (;;) {
    const from = at;
    try {
      replies.push(value());
    } catch (error) {
      if (error instanceof RangeError) return { replies, rest: text.slice(from) };
      throw error;
    }
  }
}

type Answer = string | null;

/** One command after the other, as a server does. */
async function serve(socket: Socket, answer: (command: readonly string[]) => Answer | Promise<Answer>): Promise<void> {
  let text = "";
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    const { replies, rest } = parse(text + chunk.toString("latin1"));
    text = rest;
    for (const command of replies as readonly (readonly string[])[]) {
      const reply = await answer(command);
      if (reply === "close") return void socket.end();
      if (reply !== null) socket.write(`${reply}\r\n`);
    }
  }
}

export interface ScriptedRedis extends AsyncDisposable {
  readonly port: number;
  /** Every command so far, in the order of arrival. */
  readonly commands: readonly (readonly string[])[];
  /** How many connections were taken, and how many of them are open. */
  readonly connections: { readonly taken: number; readonly open: number };
}

/** A server that answers as a test says: `+OK`, `-OOM …`, `$-1` and so on; null for no answer, `close` to end the connection. */
export async function scriptedRedis(answer: (command: readonly string[]) => Answer | Promise<Answer>): Promise<ScriptedRedis> {
  const commands: (readonly string[])[] = [];
  const sockets = new Set<Socket>();
  const connections = { taken: 0, open: 0 };
  const server = createServer((socket) => {
    connections.taken += 1;
    connections.open += 1;
    sockets.add(socket.setNoDelay(true));
    void serve(socket, (command) => {
      commands.push(command);
      return answer(command);
    }).catch(() => socket.destroy());
    socket.on("error", () => undefined);
    socket.on("close", () => {
      connections.open -= 1;
      sockets.delete(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    commands,
    connections,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
