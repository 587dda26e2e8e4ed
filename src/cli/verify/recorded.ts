import type { Inbox } from "../../contracts/inbox.ts";
import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Claim, OutboxStore, Outcome } from "../../contracts/outbox-store.ts";
import type { Outgoing, PublishResult, Sink } from "../../contracts/sink.ts";
import type { Delivery, Source } from "../../contracts/source.ts";
import type { Held, Recorder, Settled } from "../../verify/history.ts";
import { shaOf } from "./workload.ts";

/** On one machine all processes share it, and no process's clock steps in it while it runs. */
export const sharedNow = (): number => Math.round((performance.timeOrigin + performance.now()) * 1_000) / 1_000;

/** What a relay does, written down as it does it. */
export interface RelayRecords {
  outbox(of: OutboxStore): OutboxStore;
  leases(of: LeaseStore): LeaseStore;
  sink(of: Sink): Sink;
}

const heldOf = ({ envelope, lane, epoch }: Claim): Held => ({ id: envelope.id, lane, epoch: Number(epoch) });
const settledOf = (outcome: Outcome): Settled => ({
  ...heldOf(outcome.claim),
  as: outcome.as,
  ...(outcome.as === "parked" ? { release: outcome.release } : {}),
});

export function recordRelay(recorder: Recorder, published: (count: number) => void): RelayRecords {
  /** The sink is not told under which epoch it publishes. */
  const claimed = new Map<string, Held>();
  return {
    outbox: (of) => ({
      ...of,
      async claim(holding, request) {
        const window = await of.claim(holding, request);
        const claims = window.claims.map(heldOf);
        for (const claim of claims) claimed.set(claim.id, claim);
        if (claims.length > 0) recorder.write("ok", { op: "claim", claims });
        return window;
      },
      async settle(relay, window, outcomes) {
        const began = sharedNow();
        const act = { op: "settle", outcomes: outcomes.map(settledOf), began } as const;
        recorder.write("invoked", act);
        try {
          const report = await of.settle(relay, window, outcomes);
          recorder.write("ok", { ...act, settled: report.settled });
          for (const { claim } of outcomes) claimed.delete(claim.envelope.id);
          return report;
        } catch (error) {
          recorder.write("unknown", act);
          throw error;
        }
      },
    }),
    leases: (of) => ({
      ...of,
      async renew(relay, ttlMs, ...about) {
        const mono = performance.now();
        await of.renew(relay, ttlMs, ...about);
        recorder.write("ok", { op: "lease", what: "renew", mono, ttlMs });
      },
      async take(relay, lanes) {
        const began = sharedNow();
        const won = await of.take(relay, lanes);
        recorder.write("ok", { op: "lease", what: "take", began, lanes: [...won].map(([lane, epoch]) => [lane, Number(epoch)]) });
        return won;
      },
    }),
    sink: (of) => ({
      ...passing(of),
      async publish(batch, signal) {
        const events = batch.map(({ envelope: { id } }) => claimed.get(id) ?? { id, lane: -1, epoch: -1 });
        recorder.write("invoked", { op: "publish", events, mono: performance.now() });
        const results = await of.publish(batch, signal);
        for (const phase of ["ok", "failed", "unknown"] as const) {
          const some = events.filter((_, i) => phaseOf(results[i]!) === phase);
          if (some.length > 0) recorder.write(phase, { op: "publish", events: some, mono: performance.now() });
          if (phase === "ok") published(some.length);
        }
        return results;
      },
    }),
  };
}

const phaseOf = ({ status }: PublishResult): "ok" | "failed" | "unknown" =>
  status === "stored" ? "ok" : status === "unknown" ? "unknown" : "failed";

/** Some adapters tell what they can only when they are asked. */
export function passing(of: Sink): Sink {
  return {
    name: of.name,
    get can() {
      return of.can;
    },
    connect: (signal) => of.connect(signal),
    publish: (batch, signal) => of.publish(batch, signal),
    probe: (topic, signal) => of.probe(topic, signal),
    [Symbol.asyncDispose]: () => of[Symbol.asyncDispose](),
  };
}

/** A broker that refuses these aggregates' events for what they are. */
export function refusing(of: Sink, poison: ReadonlySet<string>, nameOf: (message: Outgoing) => string): Sink {
  return {
    ...passing(of),
    async publish(batch, signal) {
      const stopped = new Set<string>();
      const own = batch.map((message): PublishResult | null => {
        const name = nameOf(message);
        if (!poison.has(name)) return null;
        if (stopped.has(name)) return { status: "skipped" };
        stopped.add(name);
        return { status: "refused", blame: "event", retryable: true, error: new Error("the broker refuses this event for what it is") };
      });
      const results = await of.publish(
        batch.filter((_, i) => own[i] === null),
        signal,
      );
      let next = 0;
      return own.map((refused) => refused ?? results[next++]!);
    },
  };
}

/** A network that brings every message several times. */
export function repeating(of: Sink, times: number): Sink {
  return {
    ...passing(of),
    async publish(batch, signal) {
      const results = await of.publish(batch, signal);
      const stored = batch.filter((_, i) => results[i]!.status === "stored");
      for (let again = 0; again < times && stored.length > 0; again++) await of.publish(stored, signal);
      return results;
    },
  };
}

export function recordSource(of: Source, recorder: Recorder, consumer: string): Source {
  return {
    name: of.name,
    can: of.can,
    connect: (signal) => of.connect(signal),
    async *receive(subscription, signal): AsyncGenerator<Delivery, undefined> {
      for await (const delivery of of.receive(subscription, signal)) {
        const { topic, envelope } = delivery;
        recorder.write("ok", { op: "deliver", consumer, topic, id: envelope.id, sha: shaOf(envelope.data) });
        yield {
          topic,
          envelope,
          aside: () => delivery.aside(),
          async ack() {
            await delivery.ack();
            recorder.write("ok", { op: "ack", consumer, id: envelope.id });
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
    async once(key, version, work) {
      const result = await of.once(key, version, work);
      if (result === "done") {
        recorder.write("ok", { op: "effect", consumer: key.consumer, id: key.id });
        applied();
      }
      return result;
    },
  };
}
