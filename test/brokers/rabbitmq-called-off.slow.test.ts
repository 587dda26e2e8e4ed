import { fork } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { makeCertificates, type Certificates } from "../support/certificates.ts";
import { compile } from "./compiled.ts";
import type { Report, Request } from "./rabbitmq-child.ts";

let compiled: ReturnType<typeof compile>;
let files: Certificates;
beforeAll(() => {
  compiled = compile("test/brokers/rabbitmq-child.ts");
  files = makeCertificates("IP:127.0.0.1");
});
afterAll(() => {
  compiled.remove();
  files[Symbol.dispose]();
});

const expected = (name: string): string =>
  name.includes(" as it opens") ? "dialled again" : name.includes(", close") ? "STOPPED" : "DESTINATION_UNAVAILABLE";

test("rabbitmq: a connect that is called off, or closed, at any step leaves no socket and no timer, and never ends the process", async () => {
  const { ca, cert, key } = files;
  const child = fork(compiled.program, [JSON.stringify({ ca, cert, key } satisfies Request)], { silent: true });
  onTestFinished(() => void child.kill("SIGKILL"));
  const errors = text(child.stderr!);
  let report: Report = {};
  child.on("message", (message) => (report = message as Report));
  // A heartbeat that goes on keeps the process alive, until it times out and ends it.
  const [code] = (await once(child, "close")) as [number | null];
  expect({ code, errors: await errors }).toEqual({ code: 0, errors: "" });
  const names = Object.keys(report);
  expect(names).toHaveLength(116);
  expect(report).toEqual(Object.fromEntries(names.map((name) => [name, expected(name)])));
});
