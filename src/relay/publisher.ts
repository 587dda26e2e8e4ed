import type { Coordinator } from "../contracts/coordinator.ts";
import type { Claim, Outcome } from "../contracts/outbox-store.ts";
import type { Outgoing, PublishResult, Sink } from "../contracts/sink.ts";
import { toAttributes } from "../core/cloudevents.ts";
import { type Clock, withDeadline } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { aggregateKey } from "../core/event.ts";
import type { Failpoints } from "../core/failpoints.ts";
import { follow } from "../core/signal.ts";
import type { Breaker } from "./breaker.ts";
import type { FedWindow } from "./feed.ts";
import { judge, type Policy, refuse } from "./judge.ts";
import { type Route, topicOf } from "./route.ts";
import type { Steps } from "./steps.ts";
import type { Stops } from "./stops.ts";

export interface PublisherOptions {
  readonly sink: Sink;
  readonly route: Route;
  readonly source: string;
  readonly policy: Policy;
  readonly breaker: Breaker;
  readonly coordinator: Coordinator;
  readonly stops: Stops;
  readonly steps: Steps;
  readonly clock: Clock;
  readonly failpoints: Failpoints;
  readonly publishTimeoutMs: number;
}

export interface Publisher {
  /** Sends what may be sent, and says what became of each claim, in the order of the claims. Never rejects. */
  publish(window: FedWindow, stopping: AbortSignal): Promise<readonly Outcome[]>;
}

/** How often an event may end a relay that had it alone in its window. */
const deathsToPark = 3;
/** A sink that ignores its signal is left behind after this. */
const graceMs = 1_000;

export function createPublisher(options: PublisherOptions): Publisher {
  const { sink, breaker, coordinator, stops, clock, policy } = options;

  /** The message to send, or what becomes of the event without sending it. */
  const admit = (claim: Claim, claimedAt: number): Outgoing | Outcome => {
    const { envelope } = claim;
    if (coordinator.holding.lanes.get(claim.lane) !== claim.epoch || stops.waits(aggregateKey(envelope), envelope.seq, claimedAt)) return { claim, as: "returned" };
    if (claim.deaths >= deathsToPark) {
      return refuse(claim, new WaybillError("CRASHED_RELAY", `the relay died ${claim.deaths} times in a row while it was publishing this event alone`), false, policy);
    }
    let topic: string;
    try {
      topic = topicOf(options.route, envelope);
      const message = { topic, source: options.source, envelope };
      const bytes = sizeOf(message);
      if (bytes > sink.can.maxBytes) throw new WaybillError("MESSAGE_TOO_LARGE", `the message takes ${bytes} bytes, and ${sink.name} takes ${sink.can.maxBytes}`);
      if (breaker.admit(topic, envelope.id)) return message;
    } catch (error) {
      return refuse(claim, asError(error), false, policy);
    }
    return { claim, as: "returned", destination: { topic, why: breaker.why(topic) } };
  };

  const send = async (batch: readonly Outgoing[], stopping: AbortSignal): Promise<readonly PublishResult[]> => {
    const unknown = (why: string): readonly PublishResult[] => batch.map(() => ({ status: "unknown", error: new WaybillError("PUBLISH_UNKNOWN", why) }));
    const withinMs = Math.max(1, Math.min(options.publishTimeoutMs, coordinator.trustedForMs()));
    const ended = follow(stopping);
    const gaveUp = clock.sleep(withinMs + graceMs, ended.signal).then(() => unknown(`no answer from ${sink.name} within ${Math.round(withinMs)} ms`));
    try {
      return await withDeadline(clock, withinMs, stopping, (signal) => options.steps.run(withinMs + graceMs, () => Promise.race([sink.publish(batch, signal), gaveUp])));
    } catch (error) {
      return unknown(`${sink.name} failed: ${asError(error).message}`);
    } finally {
      ended.abort();
      ended.release();
    }
  };

  const conclude = (claim: Claim, topic: string, result: PublishResult): Outcome => {
    const { id } = claim.envelope;
    if (result.status === "stored") breaker.stored(topic, id);
    else if (result.status === "unknown" || (result.status === "refused" && result.blame === "destination")) {
      const blamed = breaker.failed(topic, id, result.error, result.status === "unknown");
      if (blamed) return refuse(claim, result.error, true, policy);
    }
    return judge(claim, topic, result, policy);
  };

  return {
    async publish(window, stopping) {
      const outcomes: (Outcome | null)[] = [];
      const sent: { readonly claim: Claim; readonly message: Outgoing; readonly at: number }[] = [];
      const stopped = new Set<string>();
      const halt = (claim: Claim): void => {
        const key = aggregateKey(claim.envelope);
        if (!stopped.has(key)) stops.stop(window.id, key, claim.envelope.seq);
        stopped.add(key);
      };
      // The whole window is looked at before anything is sent: a run of one aggregate ends at its first bad event.
      for (const [at, claim] of window.claims.entries()) {
        const admitted = stopped.has(aggregateKey(claim.envelope)) ? ({ claim, as: "returned" } as const) : admit(claim, window.claimedAt);
        if ("as" in admitted) {
          outcomes[at] = admitted;
          halt(claim);
        } else {
          outcomes[at] = null;
          sent.push({ claim, message: admitted, at });
        }
      }
      if (sent.length > 0 && coordinator.trustedForMs() > 0) {
        const ids = sent.map(({ claim }) => claim.envelope.id);
        await options.failpoints.hit("before-publish", ids);
        const results = await send(
          sent.map(({ message }) => message),
          stopping,
        );
        await options.failpoints.hit("after-publish", ids);
        for (const [index, { claim, message, at }] of sent.entries()) {
          const outcome = conclude(claim, message.topic, results[index] ?? { status: "unknown", error: new Error(`${sink.name} gave no result`) });
          outcomes[at] = outcome;
          if (outcome.as !== "published") halt(claim);
        }
      }
      return window.claims.map((claim, at) => {
        const outcome = outcomes[at];
        if (outcome !== null && outcome !== undefined) return outcome;
        halt(claim);
        return { claim, as: "returned" };
      });
    },
  };
}

function sizeOf({ envelope, source }: Outgoing): number {
  let bytes = envelope.data.byteLength;
  for (const part of [toAttributes(envelope, source), envelope.headers]) {
    for (const [name, value] of Object.entries(part)) bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
  }
  return bytes;
}
