import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { expect, test } from "vitest";
import { pause } from "./kit/changes.ts";
import { faultSuite } from "./kit/faults.ts";
import { describeEachNats, raw } from "./nats.ts";

await describeEachNats("nats: whatever happens to the server, nothing is lost, reordered or doubled", (_, subject) => {
  const { server } = faultSuite(subject);

  test("for comparison: killed, the server itself keeps what it has acknowledged to a client with nothing of ours in between", async () => {
    const nc = await connect({ servers: `127.0.0.1:${server().port}`, reconnect: false });
    const manager = await jetstreamManager(nc);
    await manager.streams.add({ name: "CONTROL", subjects: ["control.events"] });
    let acknowledged = 0;
    const publish = async (): Promise<void> => {
      for (;;) acknowledged = Math.max(acknowledged, (await jetstream(nc).publish("control.events", "x")).seq);
    };
    const publishing = Promise.allSettled(Array.from({ length: 20 }, publish));
    await pause(700);
    await server().kill9();
    await publishing;
    await server().start();
    const { state } = await raw(server().url(), async (_, again) => again.streams.info("CONTROL"));
    expect(acknowledged).toBeGreaterThan(0);
    expect(state.last_seq).toBeGreaterThanOrEqual(acknowledged);
    expect(state.messages).toBe(state.last_seq);
  });
});
