import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createServer as createSecureServer } from "node:tls";
import { setTimeout as sleep } from "node:timers/promises";
import { createLinks } from "../../src/brokers/rabbitmq/link.ts";
import { settingsOf } from "../../src/brokers/rabbitmq/url.ts";
import { systemClock, type Clock } from "../../src/core/clock.ts";
import { never } from "../../src/core/time.ts";

/** The files of a server's certificate. */
export interface Request {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** What became of each connect, by its name. */
export type Report = Readonly<Record<string, string>>;

const method = (id: number, ...args: readonly Buffer[]): Buffer => {
  const payload = Buffer.concat([Buffer.from([0, 10, 0, id]), ...args]);
  const head = Buffer.from([1, 0, 0, 0, 0, 0, payload.length]);
  return Buffer.concat([head, payload, Buffer.from([0xce])]);
};
const long = (text: string): Buffer => Buffer.concat([Buffer.from([0, 0, 0, text.length]), Buffer.from(text)]);
const start = method(10, Buffer.from([0, 9]), long(""), long("PLAIN"), long("en_US"));
const tune = method(30, Buffer.from([0, 0, 0, 2, 0, 0, 0, 3]));
const openOk = method(41, Buffer.from([0]));
const closing = (code: number): Buffer =>
  method(50, Buffer.from([code >> 8, code & 255, 4]), Buffer.from("gone"), Buffer.from([0, 0, 0, 0]));
/** What may come in the bytes of OpenOk: the server shuts down, it fails, or the bytes behind are damaged. */
const behind: Readonly<Record<string, Buffer>> = {
  "closed by 320": closing(320),
  "closed by 541": closing(541),
  damaged: Buffer.alloc(32, 9),
};
/** By what the client has sent, what a server answers. */
const answers = { header: start, "start-ok": tune, open: openOk } as const;

type Moment = "accepted" | keyof typeof answers;

/** Calls `heard` when it has accepted a connection, and for each step of the handshake that the client takes. */
async function serve(request: Request | null, heard: (moment: Moment, socket: Socket) => void) {
  const sockets = new Set<Socket>();
  let over = false;
  const speak = (socket: Socket): void => {
    socket.once("data", () => {
      heard("header", socket);
      socket.once("data", () => {
        heard("start-ok", socket);
        let bytes = 0;
        let told = false;
        // tune-ok, and then open: the client sends them in one write or in two
        socket.on("data", (chunk: Buffer) => {
          bytes += chunk.length;
          if (bytes > 20 && !told) heard("open", socket);
          if (bytes > 20) told = true;
        });
      });
    });
  };
  const server: Server =
    request === null
      ? createServer(speak)
      : createSecureServer({ cert: readFileSync(request.cert), key: readFileSync(request.key) }, speak).on(
          "tlsClientError",
          () => undefined,
        );
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
    if (!over) heard("accepted", socket);
  });
  server.on("secureConnection", (socket: Socket) => socket.on("error", () => undefined));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const query = request === null ? "" : `?ca=${request.ca}`;
  return {
    url: `${request === null ? "amqp" : "amqps"}://127.0.0.1:${port}${query}`,
    /** How many sockets stay open. Only what the client has left keeps the process alive from here on. */
    async leave(): Promise<number> {
      over = true;
      const last = connect(port, "127.0.0.1");
      await once(server, "connection"); // behind all those that the client has begun
      last.destroy();
      // For less time than a heartbeat takes to time out.
      for (let n = 0; n < 200 && sockets.size > 0; n++) await sleep(20);
      for (const socket of sockets) socket.unref();
      server.close().unref();
      return sockets.size;
    },
  };
}

const timeoutMs = 7_654;

/** The deadline of the connect passes when the test says so. `done` is called when no deadline is waited for any longer. */
function byHand(done: () => void): { readonly clock: Clock; expire(): void } {
  const waiting = new Set<() => void>();
  const sleeping = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      waiting.add(resolve);
      signal.addEventListener("abort", () => void (resolve(), done()));
    });
  return {
    clock: { ...systemClock, sleep: (ms, signal, idle) => (ms === timeoutMs ? sleeping(signal!) : systemClock.sleep(ms, signal, idle)) },
    expire: () => waiting.forEach((pass) => pass()),
  };
}

interface CallOff {
  close(): void;
  expire(): void;
}

interface Attempt {
  readonly name: string;
  readonly request: Request | null;
  readonly begun?: (off: CallOff) => Promise<void>;
  readonly heard?: (moment: Moment, socket: Socket, off: CallOff) => void;
  readonly opened?: (off: CallOff) => void;
}

async function run({ request, begun, heard, opened }: Attempt): Promise<string> {
  let closed: Promise<void> | null = null;
  const off: CallOff = { expire: () => deadline.expire(), close: () => void (closed ??= links.close()) };
  const deadline = byHand(() => opened?.(off));
  const server = await serve(request, (moment, socket) => {
    if (heard !== undefined) heard(moment, socket, off);
    else if (moment !== "accepted") socket.write(answers[moment]);
  });
  const links = createLinks({ settings: settingsOf(server.url), timeoutMs, clock: deadline.clock });
  const connecting = links.connect(never).then(
    () => "connected",
    (error: unknown) => (error as { code: string }).code,
  );
  await begun?.(off);
  const result = await Promise.race([connecting, sleep(8_000, "no answer", { ref: false })]);
  await (closed ?? links.close());
  const left = await server.leave();
  return left === 0 ? result : `${result}, and ${left} socket stays`;
}

function attemptsOver(request: Request | null): readonly Attempt[] {
  const over = request === null ? "amqp" : "amqps";
  const all: Attempt[] = [];
  for (const how of ["close", "expire"] as const) {
    for (const at of ["accepted", "header", "start-ok", "open"] as const) {
      for (const answer of ["before", "after", "late", "never"] as const) {
        const heard: Attempt["heard"] = (moment, socket, off) => {
          const say = (): void => void (moment !== "accepted" && !socket.destroyed && socket.write(answers[moment]));
          if (moment !== at) return say();
          if (answer === "before") say();
          off[how]();
          if (answer === "after") say();
          if (answer === "late") setTimeout(say, 50);
        };
        all.push({ name: `${over}, ${how} at ${at}, answered ${answer}`, request, heard });
      }
    }
    // All answers at once, before they are asked for.
    const heard: Attempt["heard"] = (moment, socket, off) => {
      if (moment !== "header") return;
      socket.write(Buffer.concat([start, tune, openOk]));
      setImmediate(() => off[how]());
    };
    all.push({ name: `${over}, ${how} at a server that answers unasked`, request, heard });
  }
  for (let turns = 0; turns < 20; turns++) {
    const begun = async ({ close }: CallOff): Promise<void> => {
      for (let n = 0; n < turns; n++) await Promise.resolve();
      close();
    };
    all.push({ name: `${over}, close after ${turns} turns`, request, begun });
  }
  all.push({ name: `${over}, close when it has just opened`, request, opened: (off) => off.close() });
  return all;
}

/** A server that ends a connection in the bytes that open it. */
async function endedAsItOpens(request: Request | null, bytes: Buffer): Promise<string> {
  let dialled = 0;
  const server = await serve(request, (moment, socket) => {
    if (moment === "accepted") dialled += 1;
    else socket.write(moment === "open" ? Buffer.concat([openOk, bytes]) : answers[moment]);
  });
  const links = createLinks({ settings: settingsOf(server.url), timeoutMs, clock: systemClock });
  for (let n = 0; n < 2; n++)
    await links.publishing
      .open(never)
      .then((connection) => connection.openChannel())
      .catch(() => undefined);
  await links.close();
  const left = await server.leave();
  return dialled === 2 && left === 0 ? "dialled again" : `dialled ${dialled} times, ${left} sockets stay`;
}

const request = JSON.parse(process.argv[2]!) as Request;
const report: Record<string, string> = {};
for (const attempts of [attemptsOver(null), attemptsOver(request)])
  await Promise.all(attempts.map(async (attempt) => void (report[attempt.name] = await run(attempt))));
for (const files of [null, request])
  for (const [how, bytes] of Object.entries(behind))
    report[`${how} as it opens, ${files === null ? "amqp" : "amqps"}`] = await endedAsItOpens(files, bytes);
process.send!(report satisfies Report);
process.disconnect();
