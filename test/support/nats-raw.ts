import { once } from "node:events";
import { connect } from "node:net";

/** Publishes bytes as they are, over the protocol: no client in between that would refuse them. Resolves when the server has taken them. */
export async function publishRaw(
  url: string,
  messages: readonly { readonly subject: string; readonly head: string | Uint8Array; readonly data?: string | Uint8Array }[],
): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let said = "";
  socket.on("data", (chunk) => (said += chunk.toString("latin1")));
  try {
    await once(socket, "connect");
    socket.write('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n');
    for (const { subject, head, data = "" } of messages) {
      const [before, after] = [Buffer.from(head as string), Buffer.from(data as string)];
      const sizes = `${before.byteLength} ${before.byteLength + after.byteLength}`;
      socket.write(Buffer.concat([Buffer.from(`HPUB ${subject} ${sizes}\r\n`), before, after, Buffer.from("\r\n")]));
    }
    socket.write("PING\r\n");
    while (!/\r\nPONG\r\n/.test(said)) {
      if (said.includes("-ERR")) throw new Error(said.slice(said.indexOf("-ERR")));
      await once(socket, "data");
    }
  } finally {
    socket.destroy();
  }
}

/** The messages of a stream by their numbers, as the server gives them in JSON: no client in between that could cut or join bytes. */
export async function storedRaw(
  url: string,
  stream: string,
  numbers: readonly number[],
): Promise<readonly { readonly head: Buffer; readonly data: Buffer }[]> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const chunks: Buffer[] = [];
  try {
    await once(socket, "connect");
    socket.write('CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB answers.* 1\r\n');
    for (const seq of numbers) {
      const asked = JSON.stringify({ seq });
      socket.write(`PUB $JS.API.STREAM.MSG.GET.${stream} answers.${seq} ${asked.length}\r\n${asked}\r\n`);
    }
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      const found = new Map<number, { readonly head: Buffer; readonly data: Buffer }>();
      // Answers are base64 in JSON, each on a line of its own.
      for (const [, seq, json] of Buffer.concat(chunks)
        .toString("latin1")
        .matchAll(/\r\nMSG answers\.(\d+) 1 \d+\r\n(\{.*\})(?=\r\n)/g)) {
        const { message } = JSON.parse(json!) as { message: { hdrs?: string; data?: string } };
        found.set(Number(seq), { head: Buffer.from(message.hdrs ?? "", "base64"), data: Buffer.from(message.data ?? "", "base64") });
      }
      if (found.size === numbers.length) return numbers.map((seq) => found.get(seq)!);
    }
    throw new Error("the server ended the connection");
  } finally {
    socket.destroy();
  }
}
