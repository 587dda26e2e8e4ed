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
