import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { built } from "../cli/build.ts";

/** What an application does first, with nobody at the address: the client is missed before anybody is called. */
const uses = {
  kafka: ["brokers/kafka", `kafka({ url: "kafka://u:hush@127.0.0.1:1?sasl=plain" }).connect(never)`, "@platformatic/kafka"],
  rabbitmq: ["brokers/rabbitmq", `rabbitmq({ url: "amqp://u:hush@127.0.0.1:1" }).connect(never)`, "amqplib"],
  nats: ["brokers/nats", `nats({ url: "nats://u:hush@127.0.0.1:1" }).connect(never)`, "@nats-io/transport-node"],
  redis: ["brokers/redis", `redis({ url: "redis://u:hush@127.0.0.1:1" }).connect(never)`, "ioredis"],
  postgres: ["stores/postgres", `postgres({ url: "postgres://u:hush@127.0.0.1:1/d" }).schema.check()`, "pg"],
  mysql: ["stores/mysql", `mysql({ url: "mysql://u:hush@127.0.0.1:1/d" }).schema.check()`, "mysql2"],
} as const;

const script = `
  const never = new AbortController().signal;
  const said = {};
  ${Object.entries(uses)
    .map(
      ([name, [folder, use]]) => `{
    const { ${name} } = await import("./dist/${folder}/index.js");
    await ${use}.then(() => { said.${name} = "works"; }, ({ code, message }) => { said.${name} = { code, message }; });
  }`,
    )
    .join("\n")}
  console.log(JSON.stringify(said));
  process.exit();`;

describe("an adapter whose client is not installed", () => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-bare-"));
  let said: Record<string, { readonly code: string; readonly message: string }>;

  beforeAll(async () => {
    const dist = dirname(dirname(await built()));
    cpSync(dist, join(folder, "dist"), { recursive: true, filter: (file) => !/\.(d\.ts|map)$/.test(file) });
    writeFileSync(join(folder, "package.json"), `{ "type": "module" }`);
    writeFileSync(join(folder, "use.js"), script);
    said = JSON.parse((await promisify(execFile)(process.execPath, ["use.js"], { cwd: folder })).stdout) as typeof said;
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.each(Object.entries(uses))("%s names the package and the command that installs it", (name, [, , client]) => {
    expect(said[name]).toMatchObject({ code: "DRIVER_MISSING" });
    expect(said[name]!.message.endsWith(` is not installed: npm install ${client}`), said[name]!.message).toBe(true);
    expect(said[name]!.message).not.toContain("hush");
  });
});
