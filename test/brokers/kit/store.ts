import type { Outgoing, Sink } from "../../../src/contracts/sink.ts";

const never = new AbortController().signal;

/** Publishes until all are stored: a slow server is given an aggregate's next message only by the next publish. */
export async function storeAll(sink: Pick<Sink, "publish">, messages: readonly Outgoing[]): Promise<void> {
  for (let left = messages; left.length > 0;) {
    const results = await sink.publish(left, never);
    const odd = results.find(({ status }) => status !== "stored" && status !== "skipped");
    if (odd !== undefined) throw new Error(`${odd.status}: ${"error" in odd ? odd.error.message : ""}`);
    left = left.filter((_, at) => results[at]!.status === "skipped");
  }
}
