import type { Socket } from "node:net";
import type { Message } from "./messages.ts";

/** One HPUB by hand, and the stream's answer. Header names and values go as they are, whatever that makes of the block. */
export function publishNats(connect: () => Socket, topic: string, { attributes, headers, data, raw }: Message): Promise<void> {
  const lines = [...attributes.map(([name, value]) => [`ce-${name}`, encodeURIComponent(value.toWellFormed())] as const), ...headers];
  const block = raw?.bytes ?? Buffer.from(`NATS/1.0\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join("")}\r\n`);
  const body = data ?? Buffer.alloc(0);
  const head =
    block.length === 0
      ? `PUB ${topic} _INBOX.fuzz ${body.length}\r\n`
      : `HPUB ${topic} _INBOX.fuzz ${block.length} ${block.length + body.length}\r\n`;
  const socket = connect();
  return new Promise<void>((resolve, reject) => {
    let heard = "";
    const refuse = (why: string): void => reject(new Error(why));
    socket.setTimeout(5_000, () => refuse("no answer within 5 s"));
    socket.on("error", reject);
    socket.on("close", () => refuse(`the server closed the connection: ${heard.slice(-100)}`));
    socket.on("data", (chunk) => {
      const first = heard === "";
      heard += chunk.toString("latin1");
      if (first) {
        const hello =
          'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\nSUB _INBOX.fuzz 1\r\n';
        socket.write(Buffer.concat([Buffer.from(hello + head), block, body, Buffer.from("\r\n")]));
      }
      if (/-ERR/.test(heard)) refuse(heard.slice(-200));
      // It has one of this id already, and stored no other.
      else if (/"error"|NATS\/1\.0 503|"duplicate"/.test(heard)) refuse(heard.slice(-200));
      else if (/"seq"/.test(heard)) resolve();
    });
  }).finally(() => socket.destroy());
}
