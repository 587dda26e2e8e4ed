import { expect, vi } from "vitest";
import type { Store } from "../../src/contracts/store.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { all } from "./mysql-relay.ts";

/** Calls a payload read off on a link that stands still: `through` opens the store on a port that leads to the server's. */
export async function expectCalledOff(
  direct: Pick<Store<never>, "outbox" | "leases">,
  serverPort: number,
  through: (port: number) => Pick<Store<never>, "outbox"> & AsyncDisposable,
): Promise<void> {
  await direct.leases.renew("r1", 600_000);
  const holding = { relay: "r1", lanes: await direct.leases.take("r1", all) };
  const { claims } = await direct.outbox.claim(holding, { limit: 500, bytes: 1_000, narrow: false, open: [] });
  await using proxy = await startTcpProxy(serverPort);
  await using store = through(proxy.port);
  const whole = await store.outbox.payload(claims[0]!, new AbortController().signal);
  expect(whole.byteLength).toBe(claims[0]!.unread);
  proxy.fault("down", { hold: true });
  const calling = new AbortController();
  const reading = store.outbox.payload(claims[0]!, calling.signal).catch((error: unknown) => error);
  await vi.waitFor(() => expect(proxy.connections).toBe(1));
  calling.abort();
  expect(await reading).toMatchObject({ code: "STORE_UNAVAILABLE" });
  proxy.heal();
  await vi.waitFor(() => expect(proxy.connections, "its connection has ended").toBe(0), 5_000);
  expect(await store.outbox.payload(claims[0]!, new AbortController().signal)).toHaveLength(whole.byteLength);
}
