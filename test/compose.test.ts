import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as yaml from "prettier/plugins/yaml";
import { describe, expect, test } from "vitest";
import { adapters } from "../src/cli/adapters.ts";
import { projectOf } from "../src/cli/init/project.ts";
import { root } from "./docs-programs.ts";
import { quickStarts } from "./quick-start/pages.ts";

interface Service {
  readonly image: string;
  readonly ports: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly command?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly volumes?: readonly string[];
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes?: Readonly<Record<string, unknown>>;
}

/** Prettier, which formats these files, has the parser. */
const parse = (text: string): Compose =>
  (yaml as unknown as { __parsePrettierYamlConfig(text: string): Compose }).__parsePrettierYamlConfig(text);

/** No Docker starts these files in our tests. What can be known without it: do they fit the URLs that stand beside them? */
function checked(text: string, urls: readonly string[]): void {
  const { services, volumes = {} } = parse(text);
  const images = Object.values(services);
  expect(images).toHaveLength(urls.length);
  urls.forEach((each, at) => {
    const url = new URL(each.replace(/^\w+:/, "http:"));
    const [scheme] = each.split(":");
    const { image, ports, environment = {}, command = [], healthcheck, volumes: mounts = [] } = images[at]!;
    const { server } = [...adapters.stores, ...adapters.brokers].find(({ schemes }) => schemes.includes(scheme!))!;
    expect(image).toMatch(/^[a-z]+(\/[a-z]+)?:\d+(\.\d+)*(-\w+)?$/);
    const own = typeof server!.port === "number" ? server!.port : 9092; // Kafka's description has words in place of a port
    expect(ports.filter((port) => !port.startsWith("127.0.0.1:"))).toEqual([]);
    expect(ports, "at the URL's port, from the port that the server has").toContain(`127.0.0.1:${url.port || String(own)}:${own}`);
    const passwords = Object.entries(environment).flatMap(([name, value]) => (/PASSWORD|_PASS$/.test(name) ? [value] : []));
    if (passwords.length > 0) expect(passwords).toContain(decodeURIComponent(url.password));
    else expect(["", "guest"]).toContain(url.password);
    if (healthcheck !== undefined) expect(["CMD", "CMD-SHELL"]).toContain(healthcheck.test[0]);
    if (scheme === "nats") expect(command.join(" ")).toMatch(/--jetstream|-js/);
    if (scheme === "redis") expect(command.join(" ")).toMatch(/--appendonly yes.*--appendfsync always/);
    for (const mount of mounts) {
      const [volume, folder] = mount.split(":");
      expect(Object.keys(volumes)).toContain(volume);
      // From 18 on, the image refuses to start with a volume at the old place.
      if (/^postgres:(1[89]|[2-9]\d)/.test(image)) expect(folder).toBe("/var/lib/postgresql");
    }
  });
}

const exported = (text: string): readonly string[] =>
  ["DATABASE_URL", "BROKER_URL"].map((name) => new RegExp(`^export ${name}=(\\S+)$`, "m").exec(text)?.[1] ?? "");

describe("a compose file fits the URLs beside it", () => {
  test.each(Object.entries(quickStarts()))("%s", (_, page) => {
    checked(/^```yaml compose\.yaml\n([\s\S]*?)^```$/m.exec(page)![1]!, exported(page));
  });

  const examples = readdirSync(join(root, "examples"), { recursive: true, encoding: "utf8" }).filter((path) =>
    path.endsWith("compose.yaml"),
  );
  test("of three example projects", () => expect(examples).toHaveLength(3));
  test.each(examples)("examples/%s", (path) => {
    const beside = readFileSync(join(root, "examples", path, "../README.md"), "utf8");
    checked(readFileSync(join(root, "examples", path), "utf8"), exported(beside));
  });

  const stacks = adapters.stores.flatMap(({ starter: store }) =>
    adapters.brokers.flatMap(({ starter: broker }) =>
      store === undefined || broker === undefined || (store.service === null && broker.service === null)
        ? []
        : [[`${store.word} and ${broker.word}`, { store, broker, library: store.libraries[0]! }] as const],
    ),
  );
  test.each(stacks)("of waybill init for %s", (_, stack) => {
    const urls = [stack.store, stack.broker].filter(({ service }) => service !== null).map(({ url }) => url);
    checked(projectOf(stack).files.get("compose.yaml")!, urls);
  });

  test("and one that does not is found", () => {
    const [[, page]] = Object.entries(quickStarts()) as [[string, string]];
    const text = /^```yaml compose\.yaml\n([\s\S]*?)^```$/m.exec(page)![1]!;
    expect(() => checked(text.replace(/127\.0\.0\.1:\d+:/, "127.0.0.1:1:"), exported(page))).toThrow();
    expect(() => checked(text.replace("PASSWORD: waybill", "PASSWORD: other"), exported(page))).toThrow();
  });
});
