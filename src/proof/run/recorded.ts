import type { Inbox } from "../../contracts/inbox.ts";
import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Claim, OutboxStore, Outcome } from "../../contracts/outbox-store.ts";
import type { PublishResult, Sink } from "../../contracts/sink.ts";
import type { Delivery, Source } from "../../contracts/source.ts";
import { sharedNow, type Clock } from "../../core/clock.ts";
import { isWaybillError } from "../../core/errors.ts";
import type { Act, HandedEvent, Recorder, Settled } from "../judge/history.ts";
import { withPublish } from "./faulty-sinks.ts";
import { shaOf } from "./workload.ts";

/** Records what a relay does, as it does it. */
interface RelayRecords {
  /** The relay's clock. Its last reading is all that the relay knows of the time when it sends. */
  readonly clock: Clock;
  outbox(of: OutboxStore): OutboxStore;
  leases(of: LeaseStore): LeaseStore;
  sink(of: Sink): Sink;
}

const heldOf = ({ envelope, lane, epoch }: Claim): HandedEvent => ({ id: envelope.id, lane, epoch: Number(epoch) });
const settledOf = (outcome: Outcome): Settled => ({
  ...heldOf(outcome.claim),
  as: outcome.as,
  ...(outcome.as === "parked" ? { release: outcome.release } : {}),
});

export function recordRelay(recorder: Recorder, clock: Clock, published: (count: number) => void): RelayRecords {
  /** The sink does not know the epoch under which it publishes. */
  const claimed = new Map<string, Claim>();
  const orUnknown = unknownOf(recorder);
  const look = (): { readonly began: number; readonly mono: number } => ({ began: sharedNow(), mono: clock.monotonic() });
  let looked = look();
  return {
    clock: { ...clock, monotonic: () => (looked = look()).mono },
    outbox: (of) => ({
      ...of,
      async claim(holding, request) {
        recorder.write("invoked", { op: "claim", claims: [] });
        const window = await orUnknown({ op: "claim", claims: [] }, () => of.claim(holding, request));
        for (const claim of window.claims) claimed.set(claim.envelope.id, claim);
        recorder.write("ok", { op: "claim", claims: window.claims.map(heldOf) });
        return window;
      },
      async settle(relay, window, outcomes) {
        const began = sharedNow();
        const act = { op: "settle", outcomes: outcomes.map(settledOf), began } as const;
        recorder.write("invoked", act);
        const report = await orUnknown(act, () => of.settle(relay, window, outcomes));
        recorder.write("ok", { ...act, settled: report.settled });
        // The event may have been claimed again while this settle was retried.
        for (const { claim } of outcomes) if (claimed.get(claim.envelope.id) === claim) claimed.delete(claim.envelope.id);
        return report;
      },
    }),
    leases: (of) => ({
      ...of,
      async renew(relay, ttlMs, ...about) {
        const act = { op: "lease", what: "renew", mono: clock.monotonic(), ttlMs } as const;
        recorder.write("invoked", act);
        await orUnknown(act, () => of.renew(relay, ttlMs, ...about));
        recorder.write("ok", act);
      },
      async take(relay, lanes) {
        const act = { op: "lease", what: "take", began: sharedNow() } as const;
        recorder.write("invoked", { ...act, lanes: [] });
        const won = await orUnknown({ ...act, lanes: [] }, () => of.take(relay, lanes));
        recorder.write("ok", { ...act, lanes: [...won].map(([lane, epoch]) => [lane, Number(epoch)]) });
        return won;
      },
    }),
    sink: (of) =>
      withPublish(of, async (batch, signal) => {
        const events = batch.map(({ envelope: { id } }) => {
          const claim = claimed.get(id);
          return claim === undefined ? { id, lane: -1, epoch: -1 } : heldOf(claim);
        });
        const act = { op: "publish", ...looked } as const;
        recorder.write("invoked", { ...act, events });
        const results = await of.publish(batch, signal);
        for (const phase of ["ok", "failed", "unknown"] as const) {
          const some = events.filter((_, i) => phaseOf(results[i]!) === phase);
          if (some.length > 0) recorder.write(phase, { ...act, events: some });
          if (phase === "ok") published(some.length);
        }
        return results;
      }),
  };
}

/** A call that the server did not answer may have been done. */
const unknownOf =
  (recorder: Recorder) =>
  async <T>(act: Act, work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      recorder.write("unknown", act);
      throw error;
    }
  };

const phaseOf = ({ status }: PublishResult): "ok" | "failed" | "unknown" =>
  status === "stored" ? "ok" : status === "unknown" ? "unknown" : "failed";

export function recordSource(of: Source, recorder: Recorder, consumer: string): Source {
  const orUnknown = unknownOf(recorder);
  return {
    name: of.name,
    can: of.can,
    connect: (signal) => of.connect(signal),
    async *receive(subscription, signal): AsyncGenerator<Delivery, undefined> {
      for await (const delivery of of.receive(subscription, signal)) {
        const { topic, envelope } = delivery;
        // Not an event, and not written by the run. It is passed on unrecorded, and the run's own messages follow.
        if (delivery.unreadable !== undefined) {
          yield delivery;
          continue;
        }
        recorder.write("ok", { op: "deliver", consumer, topic, id: envelope.id, sha: shaOf(envelope) });
        yield {
          ...delivery,
          aside: () => delivery.aside(),
          async ack() {
            const act = { op: "ack", consumer, id: envelope.id } as const;
            recorder.write("invoked", act);
            await orUnknown(act, () => delivery.ack());
            recorder.write("ok", act);
          },
        };
      }
    },
    [Symbol.asyncDispose]: () => of[Symbol.asyncDispose](),
  };
}

export function recordInbox<Tx>(of: Inbox<Tx>, recorder: Recorder, applied: () => void): Inbox<Tx> {
  return {
    ...of,
    async once(keys, version, work, letter) {
      let applying: ReadonlySet<string> = new Set();
      const acts = [keys.id, ...(keys.also ?? [])].map((id) => ({ op: "effect", consumer: keys.consumer, id }) as const);
      for (const act of acts) recorder.write("invoked", act);
      const heard: typeof work = (tx, fresh, next) => work(tx, (applying = fresh), next);
      const result = await of.once(keys, version, heard, letter).catch((error: unknown) => {
        // After any error but COMMIT_UNKNOWN, Waybill promises that nothing was kept.
        for (const act of acts) recorder.write(isWaybillError(error, "COMMIT_UNKNOWN") ? "unknown" : "failed", act);
        throw error;
      });
      for (const act of acts) recorder.write(applying.has(act.id) ? "ok" : "failed", act);
      for (const _ of applying) applied();
      return result;
    },
  };
}
