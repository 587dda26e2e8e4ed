import { createServer, type AddressInfo, type Socket } from "node:net";

/** What a scripted server says; strings are sent as Latin-1. */
export interface NatsScript {
  /** The first line, by the number of the connection. @default a right one */
  readonly greeting?: (connection: number, socket: Socket) => string | null;
  /** After the handshake. */
  readonly greeted?: (socket: Socket) => void;
  /** The data of the answer to a message; null for none. @default a stream S that takes everything */
  readonly answer?: (subject: string, data: string) => string | null;
  /** Called with a pull's inbox, the subscription that its answers go to, and how many messages it asks for. */
  readonly pulled?: (socket: Socket, inbox: string, sid: string, batch: number) => void;
}

export interface ScriptedNats extends AsyncDisposable {
  readonly port: number;
  /** How many connections are open. */
  readonly open: number;
}

export const info = (more: object = {}): string =>
  `INFO ${JSON.stringify({ server_id: "x", version: "2.10.27", headers: true, max_payload: 1_048_576, proto: 1, ...more })}\r\n`;

const state = { messages: 0, first_seq: 1, first_ts: "2026-01-01T00:00:00Z", last_seq: 0, bytes: 0, consumer_count: 0 };
const streamConfig = { name: "S", subjects: ["t.events"], retention: "limits", storage: "file", discard: "new", num_replicas: 1 };
const limits = { max_msgs: -1, max_bytes: -1, max_msgs_per_subject: -1, max_age: 0 };
const consumer = { ack_floor: { stream_seq: 0, consumer_seq: 0 }, delivered: { stream_seq: 0, consumer_seq: 0 } };

/** What a server with one stream would answer. */
export function rightAnswer(subject: string): string | null {
  const [api, body] = /^\$JS\.API\.([A-Z]+\.[A-Z]+)/.exec(subject) ?? [];
  if (subject === "$JS.API.INFO") return "{}";
  if (api === undefined) return subject.startsWith("$JS.") ? null : JSON.stringify({ stream: "S", seq: 1 });
  switch (body) {
    case undefined:
      return "{}";
    case "STREAM.NAMES":
      return JSON.stringify({ streams: ["S"], total: 1 });
    case "STREAM.INFO":
      return JSON.stringify({ config: { ...streamConfig, ...limits }, state });
    case "CONSUMER.LIST":
      return JSON.stringify({ total: 0, consumers: [] });
    case "CONSUMER.DURABLE":
      return JSON.stringify({ name: "d", config: {}, ...consumer, num_ack_pending: 0, num_pending: 0 });
    default:
      return body === "CONSUMER.MSG" ? null : "{}";
  }
}

/** A NATS server of a few lines, which may say anything. */
export async function scriptedNats(script: NatsScript = {}, port = 0): Promise<ScriptedNats> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => undefined);
    const greeting = (script.greeting ?? (() => info()))((connections += 1), socket);
    if (greeting !== null) socket.write(greeting, "latin1");
    converse(socket, script);
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    get open() {
      return sockets.size;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function converse(socket: Socket, { answer = rightAnswer, greeted, pulled }: NatsScript): void {
  const subscriptions: { readonly prefix: string; readonly sid: string }[] = [];
  const sidOf = (subject: string): string => subscriptions.find(({ prefix }) => subject.startsWith(prefix))?.sid ?? "0";
  let buffer = "";
  let pings = 0;
  socket.on("data", (chunk) => {
    buffer += chunk.toString("latin1");
    for (;;) {
      const end = buffer.indexOf("\r\n");
      if (end < 0) return;
      const [verb, ...args] = buffer.slice(0, end).split(" ");
      const isMessage = verb === "PUB" || verb === "HPUB";
      const size = isMessage ? Number(args.at(-1)) : -2;
      if (buffer.length < end + size + 4) return;
      const data = isMessage ? buffer.slice(end + 2, end + 2 + size) : "";
      buffer = buffer.slice(end + size + 4);
      if (verb === "PING") {
        socket.write("PONG\r\n");
        if ((pings += 1) === 1) greeted?.(socket);
      } else if (verb === "SUB") subscriptions.push({ prefix: args[0]!.replace(/\*$/, ""), sid: args.at(-1)! });
      else if (isMessage) {
        const [subject = "", reply = ""] = args;
        if (subject.startsWith("$JS.API.CONSUMER.MSG.NEXT.")) {
          const { batch } = JSON.parse(data.slice(data.indexOf("{"))) as { batch: number };
          pulled?.(socket, reply, sidOf(reply), batch);
        }
        const said = answer(subject, data);
        if (said !== null) socket.write(`MSG ${reply} ${sidOf(reply)} ${Buffer.byteLength(said, "latin1")}\r\n${said}\r\n`, "latin1");
      }
    }
  });
}
