import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { within } from "../../src/conformance/corpus.ts";
import { isWaybillError } from "../../src/core/errors.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { expectOurWords, javascripts } from "./lies.ts";

const packet = (sequence: number, body: Buffer | string, length = Buffer.byteLength(body)): Buffer => {
  const head = Buffer.alloc(4);
  head.writeUIntLE(length, 0, 3);
  head[3] = sequence;
  return Buffer.concat([head, Buffer.from(body as string)]);
};
const capabilities = 0x00_0f_a2_0f; // protocol 4.1, secure connection, plugins, transactions
const greeting = packet(
  0,
  Buffer.concat([
    Buffer.from("\x0a8.0.40\0\x07\0\0\0abcdefgh\0", "latin1"),
    Buffer.from([capabilities & 0xff, (capabilities >> 8) & 0xff, 0x2d, 2, 0, (capabilities >> 16) & 0xff, 0, 21]),
    Buffer.alloc(10),
    Buffer.from("ijklmnopqrst\0mysql_native_password\0"),
  ]),
);
const ok = Buffer.from([0, 0, 0, 2, 0, 0, 0]);

/** What MySQL answers to nothing. Each begins as the first answer to a login or a statement does. */
const wrong: Readonly<Record<string, (sequence: number) => Buffer>> = {
  "another's packet": (sequence) => packet(sequence + 77, ok),
  "an empty packet": (sequence) => packet(sequence, ""),
  "an error without a number": (sequence) => packet(sequence, Buffer.from([0xff])),
  "columns that are not there": (sequence) => Buffer.concat([packet(sequence, Buffer.from([2])), packet(sequence + 1, "x")]),
  "a number of columns that is none": (sequence) => packet(sequence, Buffer.from([0xfe, 1])),
  "a file to be sent": (sequence) => packet(sequence, "\xfb/etc/passwd"),
  "two answers": (sequence) => Buffer.concat([packet(sequence, ok), packet(sequence + 1, ok), packet(sequence + 2, Buffer.from([0xff]))]),
  "a page of HTML": () => Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n<html>"),
  zeros: () => Buffer.alloc(5_000),
  "all ones": () => Buffer.alloc(5_000, 0xff),
};

const uncaught: unknown[] = [];
const note = (error: unknown): void => void uncaught.push(error);
beforeEach(() => {
  process.on("uncaughtException", note).on("unhandledRejection", note);
  for (const way of ["error", "trace", "warn"] as const) vi.spyOn(console, way).mockImplementation(() => undefined);
});
afterEach(() => {
  vi.restoreAllMocks();
  process.off("uncaughtException", note).off("unhandledRejection", note);
  expect(uncaught.splice(0).map(String)).toEqual([]);
});

/** A server that lets every session in, and answers its statements so; or its login; or greets so. */
async function answering(answer: (sequence: number, statement: string) => Buffer, to: string) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.write(to === "a connection" ? answer(0, "") : greeting);
    socket.once("data", () => {
      socket.write(to === "a login" ? answer(2, "") : packet(2, ok));
      socket.on("data", (bytes) => socket.write(answer(1, bytes.toString("latin1"))));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const port = (server.address() as AddressInfo).port;
  const store = mysql({ url: `mysql://waybill:s3cret@127.0.0.1:${port}/shop`, connectTimeoutMs: 700, statementTimeoutMs: 700 });
  onTestFinished(async () => {
    await store[Symbol.asyncDispose]();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { store, sockets };
}

for (const [name, answer] of Object.entries(wrong))
  test.each(["a connection", "a login", "a statement"])(
    `${name}, in answer to %s: told in our words, and the connection is closed`,
    async (to) => {
      const { store, sockets } = await answering(answer, to);
      const error: unknown = await within(10_000, "show", store.operator.show("x")).catch((thrown: unknown) => thrown);
      expect(isWaybillError(error) && error.code, String(error)).toBe("STORE_UNAVAILABLE");
      expect(String(error)).not.toMatch(javascripts);
      expect(String(error)).not.toContain("s3cret");
      expect(String(error)).not.toContain("/etc/passwd");
      await expect.poll(() => sockets.every((socket) => socket.destroyed), { timeout: 5_000 }).toBe(true);
    },
  );

const text = (value: string): Buffer => Buffer.concat([Buffer.from([value.length]), Buffer.from(value, "latin1")]);
/** A result with one row. */
const rowOf = (row: Readonly<Record<string, string | null>>): Buffer => {
  const column = (name: string): Buffer =>
    Buffer.concat([...["def", "", "", "", name, ""].map(text), Buffer.from([12, 45, 0, 0, 1, 0, 0, 0xfd, 0, 0, 0, 0, 0])]);
  const end = Buffer.from([0xfe, 0, 0, 2, 0]);
  const values = Object.values(row).map((value) => (value === null ? Buffer.from([0xfb]) : text(value)));
  const packets = [Buffer.from([values.length]), ...Object.keys(row).map(column), end, Buffer.concat(values), end];
  return Buffer.concat(packets.map((body, at) => packet(at + 1, body)));
};
const refusal = (words: string): Buffer => packet(1, Buffer.concat([Buffer.from([0xff, 0x51, 0x04]), Buffer.from(`#HY000${words}`)]));
const session = { version: "8.0.40", binlog: "0", unique_name: "u", autocommit: "1", completion: "NO_CHAIN", place: "p", id: "7" };

/** Whole packets, and not what was asked for. */
const lies: Readonly<Record<string, Buffer>> = {
  "a row of another statement": rowOf({ another: "1" }),
  "a row of nothing": rowOf({ another: null }),
  "half of a row": rowOf({ most: "18446744073709551615", version: "8.0.40", autocommit: "1" }),
  "numbers that are none": rowOf({ n: "\x01", attempts: "\x06" }),
  "no rows": packet(1, ok),
};
const errors: Readonly<Record<string, Buffer>> = {
  "an error with control characters": refusal("cut \x1b[31mred\x07 here"),
  "an error of 100,000 characters": refusal("long ".repeat(20_000)),
};

for (const [name, lie] of Object.entries({ ...lies, ...errors }))
  test.each([
    ["the statement of its session", {}],
    ["every other statement", { most: "18446744073709551615" }],
  ])(`${name}, in answer to %s: each call fails in our words, or not at all`, async (_, more: Readonly<Record<string, string>>) => {
    const lying = (_sequence: number, statement: string): Buffer => {
      if (/SELECT VERSION/.test(statement) && "most" in more) return rowOf({ ...session, ...more });
      return /^.{4}\x03(SET|START|ROLLBACK|COMMIT)/s.test(statement) ? packet(1, ok) : lie;
    };
    const { store } = await answering(lying, "a statement");
    await expectOurWords(store, name in lies);
  });
