import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, expect, onTestFinished, test } from "vitest";
import { within } from "../../src/conformance/corpus.ts";
import { isWaybillError } from "../../src/core/errors.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { expectOurWords, javascripts } from "./lies.ts";

const message = (type: string, body: Buffer | string, length = 4 + Buffer.byteLength(body)): Buffer => {
  const head = Buffer.alloc(5);
  head.write(type, "latin1");
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, Buffer.from(body as string)]);
};
const welcome = [message("R", Buffer.alloc(4)), message("Z", "I")];

/** What PostgreSQL answers to nothing. */
const wrong: Readonly<Record<string, Buffer>> = {
  "a type that there is not": message("\xff", "x"),
  "a type of another version": message("x", "x"),
  "a length of 0": message("Z", "I", 0),
  "a length of 4 GiB": message("D", "x", 2 ** 32 - 1),
  "a row of fields that are not there": message("D", Buffer.from([0x7f, 0xff])),
  "a row of fewer fields than none": message("D", Buffer.from([0xff, 0xf0])),
  "columns that are not there": message("T", Buffer.from([0x7f, 0xff])),
  "an error without an end": message("E", "SERROR\0Mno"),
  "a notice without an end": message("N", "SNOTICE\0Mno\0"),
  "an error of nothing": message("E", ""),
  "a login that nobody knows": message("R", Buffer.from([0, 0, 0, 99])),
  "an end of nothing": message("C", ""),
  "a row before its columns": message("D", Buffer.from([0, 1, 0, 0, 0, 1, 0x61])),
  "a page of HTML": Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n<html>"),
};

const uncaught: unknown[] = [];
const note = (error: unknown): void => void uncaught.push(error);
beforeEach(() => void process.on("uncaughtException", note).on("unhandledRejection", note));
afterEach(() => {
  process.off("uncaughtException", note).off("unhandledRejection", note);
  expect(uncaught.splice(0).map(String)).toEqual([]);
});

/** A server that lets every session in, and gives `answer` to its statements; or answers so at once. */
async function answering(answer: Buffer, atOnce: boolean) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.once("data", () => {
      socket.write(atOnce ? answer : Buffer.concat(welcome));
      socket.on("data", () => socket.write(Buffer.concat([answer, message("Z", "I")])));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const port = (server.address() as AddressInfo).port;
  const store = postgres({ url: `postgres://waybill:s3cret@127.0.0.1:${port}/shop`, connectTimeoutMs: 700, statementTimeoutMs: 700 });
  onTestFinished(async () => {
    await store[Symbol.asyncDispose]();
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { store, sockets };
}

for (const [name, answer] of Object.entries(wrong))
  test.each([
    ["a login", true],
    ["a statement", false],
  ])(`${name}, in answer to %s: told in our words, and the connection is closed`, async (_, atOnce) => {
    const { store, sockets } = await answering(answer, atOnce);
    const error: unknown = await within(10_000, "show", store.operator.show("x")).catch((thrown: unknown) => thrown);
    expect(isWaybillError(error) && error.code, String(error)).toBe("STORE_UNAVAILABLE");
    expect(String(error)).not.toMatch(javascripts);
    expect(String(error)).not.toContain("s3cret");
    await expect.poll(() => sockets.every((socket) => socket.destroyed)).toBe(true);
  });

/** The result of SET, and of a SELECT with one row. */
const oneRow = (name: string, value: Buffer | null): Buffer =>
  Buffer.concat([
    message("C", "SET\0"),
    message("T", Buffer.concat([Buffer.from([0, 1]), Buffer.from(`${name}\0`), Buffer.alloc(18)])),
    message(
      "D",
      Buffer.concat([
        Buffer.from([0, 1]),
        value === null ? Buffer.alloc(4, 0xff) : Buffer.from([0, 0, 0, value.length]),
        value ?? Buffer.alloc(0),
      ]),
    ),
    message("C", "SELECT 1\0"),
  ]);

/** Whole messages, and not what was asked for. */
const lies: Readonly<Record<string, Buffer>> = {
  "a row of another statement": oneRow("another", Buffer.from("1")),
  "a row of nothing": oneRow("another", null),
  "marks that are none": oneRow("mark", Buffer.from("no mark")),
  "numbers that are none": oneRow("n", Buffer.from("\x01")),
  "a row before its columns": Buffer.concat([wrong["a row before its columns"]!, message("C", "SELECT 1\0")]),
};
const errors: Readonly<Record<string, Buffer>> = {
  "an error with control characters": message("E", "SERROR\0C22000\0Mcut \x1b[31mred\x07 here\0\0"),
  "an error of 100,000 characters": message("E", `SERROR\0C53000\0M${"long ".repeat(20_000)}\0\0`),
};

for (const [name, answer] of Object.entries({ ...lies, ...errors }))
  test(`${name}, in answer to every statement: each call fails in our words, or not at all`, async () => {
    const { store } = await answering(answer, false);
    await expectOurWords(store, name in lies);
  });
