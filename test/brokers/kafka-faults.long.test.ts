import { ProduceAcks, Producer } from "@platformatic/kafka";
import { expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { freshTopics, subject } from "./kafka.ts";
import { readTopic } from "./kafka-raw.ts";
import { pause } from "./kit/changes.ts";
import { faultSuite } from "./kit/faults.ts";

await describeWith("kafka", "kafka: whatever happens to the server, nothing is lost or reordered", () => {
  const { server } = faultSuite(subject);

  test("killed, it has what it told a bare client: a loss would be the server's own", async () => {
    const [topic] = await freshTopics(server().url(), 1);
    const client = new Producer({ clientId: "control", bootstrapBrokers: [`127.0.0.1:${server().port}`], retries: 0, timeout: 2_000 });
    let told = 0;
    let on = true;
    const writing = (async () => {
      while (on) {
        await client.send({ acks: ProduceAcks.ALL, messages: [{ topic, key: Buffer.from("k"), value: Buffer.from(String(told)) }] });
        told += 1;
      }
    })().catch(() => undefined);
    await expect.poll(() => told, { timeout: 20_000 }).toBeGreaterThan(100);
    await server().kill9();
    on = false;
    await Promise.race([writing, pause(5_000)]);
    await Promise.resolve(client.close(true)).catch(() => undefined);
    await server().start();
    expect((await readTopic(server().url(), topic)).length).toBeGreaterThanOrEqual(told);
  });
});
