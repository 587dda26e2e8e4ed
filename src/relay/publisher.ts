import type { Claim, Outcome, OutboxStore } from "../contracts/outbox-store.ts";
import type { Outgoing, PublishResult } from "../contracts/sink.ts";
import { toAttributes } from "../core/cloudevents.ts";
import { deathsToPark } from "../core/retry.ts";
import { asError, isWaybillError, WaybillError } from "../core/errors.ts";
import { aggregateKey } from "../core/event.ts";
import { checkHeaders } from "../core/headers.ts";
import { runsOf } from "../core/runs.ts";
import { follow, withDeadline } from "../core/time.ts";
import { tooLargeToRead } from "../core/within-bytes.ts";
import { type Progress, stepping } from "../core/progress.ts";
import type { Breaker } from "./breaker.ts";
import type { Part } from "./feed.ts";
import { judge, refuse } from "./judge.ts";
import type { RelayParts } from "./parts.ts";
import { topicOf } from "./route.ts";
import type { Stops } from "./stops.ts";

interface PublisherOptions extends Pick<
  RelayParts,
  "sink" | "route" | "source" | "policy" | "coordinator" | "clock" | "failpoints" | "publishTimeoutMs"
> {
  readonly outbox: Pick<OutboxStore, "payload">;
  readonly breaker: Breaker;
  readonly stops: Stops;
  readonly steps: Progress;
  readonly readTimeoutMs: number;
}

interface Publisher {
  /** What becomes of a part's only event without a look at its payload; null: it is to be read, since its topic takes events now. */
  refuse(part: Part): Outcome | null;
  /**
   * A part's only claim with the payload that the store left behind; or what becomes of the event without it. A store that fails or is
   * silent here is this event's own failure: it waits its back-off, and others go on. Never rejects.
   */
  read(part: Part, draining: AbortSignal): Promise<Claim | Outcome>;
  /** Sends what may be sent, round trip by round trip, and says what became of each claim. Never rejects. */
  publish(part: Part, signals: { readonly draining: AbortSignal; readonly stopping: AbortSignal }): Promise<PublishedPart>;
}

export interface PublishedPart {
  /** In the order of the claims. */
  readonly outcomes: readonly Outcome[];
  /** Those that have no outcome yet: nothing of them was sent, and what comes before them is to be settled first. */
  readonly left: readonly Claim[];
}

/** Where less than this part of its time is left before the lease is doubtful, a publish is not begun: called off, it may leave a copy. */
const leastShare = 4;
/** A sink, or a store's read, that ignores its signal is left behind after this. */
const graceMs = 1_000;
/** A run of many round trips ends between two of them after this, so that what it has stored is settled while it goes on. */
const turnMs = 100;

export function createPublisher(options: PublisherOptions): Publisher {
  const { sink, breaker, coordinator, stops, clock, policy } = options;

  /** The message, or what becomes of the event without sending it. */
  const check = (claim: Claim, claimedAt: number): Outgoing | Outcome => {
    const { envelope } = claim;
    if (coordinator.holding.lanes.get(claim.lane) !== claim.epoch || stops.waits(aggregateKey(envelope), envelope.seq, claimedAt))
      return returned(claim);
    if (claim.deaths >= deathsToPark) {
      return refuse(
        claim,
        new WaybillError("CRASHED_RELAY", `the relay died ${claim.deaths} times in a row while it had this event alone in hand`),
        false,
        policy,
      );
    }
    if (claim.unreadable !== undefined) return refuse(claim, new WaybillError("ROW_UNREADABLE", claim.unreadable), false, policy);
    let message: Outgoing;
    try {
      message = { topic: topicOf(options.route, envelope), source: options.source, envelope };
      checkHeaders(envelope.headers); // plain SQL may have written any
      const bytes = sizeOf(message) + (claim.unread ?? 0);
      if (bytes > sink.can.maxBytes)
        throw new WaybillError("MESSAGE_TOO_LARGE", `the message takes ${bytes} bytes, and ${sink.name} takes ${sink.can.maxBytes}`);
      const tooLarge = tooLargeToRead(claim.unread ?? 0);
      if (tooLarge !== null) throw new WaybillError("ROW_UNREADABLE", tooLarge);
    } catch (error) {
      return refuse(claim, asError(error), false, policy);
    }
    return message;
  };

  const admit = (claim: Claim, claimedAt: number): Outgoing | Outcome => {
    const message = check(claim, claimedAt);
    if ("as" in message) return message;
    if (claim.unread !== undefined) return returned(claim); // the sink takes more than when it was claimed: the next claim decides
    return breaker.admit(message.topic, claim.envelope.id) ? message : held(claim, message.topic);
  };

  const held = (claim: Claim, topic: string): Outcome => ({ claim, as: "returned", destination: { topic, why: breaker.why(topic) } });

  /** Null: the relay is draining. Otherwise the read has ended when this does: two of them must not be in memory, nor hold two connections. */
  const fetch = async (claim: Claim, draining: AbortSignal): Promise<Uint8Array | null> => {
    const ended = follow(draining);
    const reading = follow(ended.signal);
    let heardAt = clock.monotonic();
    let late = false;
    const giveUp = async (): Promise<null> => {
      for (let leftMs = options.readTimeoutMs; leftMs > 0; leftMs = heardAt + options.readTimeoutMs - clock.monotonic()) {
        await clock.sleep(leftMs, reading.signal);
        if (reading.signal.aborted) return null;
      }
      late = true;
      reading.abort();
      await clock.sleep(graceMs, ended.signal);
      return null;
    };
    try {
      const read = options.outbox.payload(claim, reading.signal, () => (heardAt = clock.monotonic()));
      const data = await Promise.race([read, giveUp()]);
      if (data !== null || !late) return data;
    } catch (error) {
      if (!late && draining.aborted) return null;
      if (!late) throw error;
    } finally {
      ended.abort();
      for (const follower of [ended, reading]) follower.release();
    }
    throw new WaybillError("STORE_UNAVAILABLE", `the store did not answer within ${options.readTimeoutMs} ms`);
  };

  const read = async (claim: Claim, draining: AbortSignal): Promise<Claim | Outcome> => {
    const { unread = 0, ...rest } = claim;
    try {
      const data = draining.aborted ? null : await fetch(claim, draining);
      return data === null ? returned(claim) : { ...rest, envelope: { ...rest.envelope, data } };
    } catch (cause) {
      const error = asError(cause);
      if (isWaybillError(error) && error.code === "ROW_UNREADABLE") return refuse(claim, error, false, policy);
      const why = `its payload of ${unread} bytes could not be read: ${error.message}`;
      return refuse(claim, new WaybillError("ROW_UNREADABLE", why), true, policy);
    }
  };

  const stopAt = (part: Part, { claim: { envelope } }: Outcome): void => stops.stop(part, aggregateKey(envelope), envelope.seq);

  /** Null: nothing was sent, since the lease leaves hardly any time for it. */
  const send = async (batch: readonly Outgoing[], stopping: AbortSignal): Promise<readonly PublishResult[] | null> => {
    const unknown = (why: string): readonly PublishResult[] =>
      batch.map(() => ({ status: "unknown", error: new WaybillError("PUBLISH_UNKNOWN", why) }));
    // The last look at the clock before the sink has the batch: whoever is frozen on the way here sees it.
    const trustedMs = coordinator.trustedForMs();
    if (trustedMs < options.publishTimeoutMs / leastShare) return null;
    const withinMs = Math.min(options.publishTimeoutMs, trustedMs);
    const ended = follow(stopping);
    const gaveUp = clock
      .sleep(withinMs + graceMs, ended.signal)
      .then(() => unknown(stopping.aborted ? "the relay was stopped" : `no answer from ${sink.name} within ${Math.round(withinMs)} ms`));
    try {
      return await withDeadline(clock, withinMs, stopping, (signal) => Promise.race([sink.publish(batch, signal), gaveUp]));
    } catch (error) {
      return unknown(`${sink.name} failed: ${asError(error).message}`);
    } finally {
      ended.abort();
      ended.release();
    }
  };

  const conclude = (claim: Claim, topic: string, result: PublishResult, stopped: boolean): Outcome => {
    const { id } = claim.envelope;
    switch (result.status) {
      case "stored":
        breaker.answered(topic, id);
        break;
      case "skipped":
        breaker.unsent(topic, id);
        break;
      case "unknown":
        // Called off by us: that says nothing of the destination.
        if (stopped) {
          breaker.unsent(topic, id);
          return returned(claim);
        }
        if (breaker.failed(topic, id, result.error, true)) return refuse(claim, result.error, true, policy);
        break;
      case "refused":
        if (result.blame === "event") breaker.answered(topic, id);
        else breaker.failed(topic, id, result.error, false);
    }
    return judge(claim, topic, result, policy);
  };

  /**
   * Results by place; none for what was not sent. The next events of an aggregate are sent when those before them are stored.
   * "untrusted": the lease leaves hardly any time for more.
   */
  const sendAll = async (
    batch: readonly Outgoing[],
    { draining, stopping }: { readonly draining: AbortSignal; readonly stopping: AbortSignal },
  ): Promise<{ readonly results: readonly (PublishResult | undefined)[]; readonly untrusted: boolean }> => {
    const results: (PublishResult | undefined)[] = [];
    const until = clock.monotonic() + turnMs;
    let runs = runsOf(batch.map(({ envelope }) => envelope));
    while (runs.length > 0) {
      const round = runs.flatMap((run) => run.splice(0, sink.can.run ?? Infinity));
      const ids = round.map((at) => batch[at]!.envelope.id);
      await options.failpoints.hit("before-publish", ids);
      const messages = round.map((at) => batch[at]!);
      const answers = await stepping(options.steps, options.publishTimeoutMs + 2 * graceMs, () => send(messages, stopping));
      if (answers === null) return { results, untrusted: true };
      await options.failpoints.hit("after-publish", ids);
      const stopped = new Set<string>();
      round.forEach((at, i) => {
        results[at] = answers[i] ?? noResult(sink.name);
        if (results[at].status !== "stored") stopped.add(aggregateKey(batch[at]!.envelope));
      });
      if (stopped.size > 0) {
        for (const run of runs)
          if (run.length > 0 && stopped.has(aggregateKey(batch[run[0]!]!.envelope))) for (const at of run.splice(0)) results[at] = skipped;
      }
      runs = runs.filter((run) => run.length > 0);
      if (draining.aborted || clock.monotonic() >= until) break;
    }
    return { results, untrusted: false };
  };

  return {
    refuse(part) {
      const claim = part.claims[0]!;
      const checked = check(claim, part.claimedAt);
      if (!("as" in checked) && breaker.admits(checked.topic)) return null;
      const refused = "as" in checked ? checked : held(claim, checked.topic);
      stopAt(part, refused);
      return refused;
    },
    async read(part, draining) {
      const found = await read(part.claims[0]!, draining);
      if ("as" in found) stopAt(part, found);
      return found;
    },
    async publish(part, signals) {
      // All is looked at before anything is sent: a run of one aggregate ends at its first bad event.
      const unsent = new Map<Claim, Outcome>();
      const stopped = new Set<string>();
      const sent: { readonly claim: Claim; readonly message: Outgoing }[] = [];
      for (const claim of part.claims) {
        const aggregate = aggregateKey(claim.envelope);
        const admitted = stopped.has(aggregate) ? returned(claim) : admit(claim, part.claimedAt);
        if ("as" in admitted) {
          unsent.set(claim, admitted);
          stopped.add(aggregate);
        } else sent.push({ claim, message: admitted });
      }
      const { results, untrusted } =
        sent.length === 0
          ? { results: [], untrusted: false }
          : await sendAll(
              sent.map(({ message }) => message),
              signals,
            );

      const outcomes = new Map<Claim, Outcome>();
      /** Aggregates that have more to send. */
      const unfinished = new Set<string>();
      sent.forEach(({ claim, message }, at) => {
        const result = results[at];
        if (result !== undefined) outcomes.set(claim, conclude(claim, message.topic, result, signals.stopping.aborted));
        else {
          breaker.unsent(message.topic, claim.envelope.id);
          if (untrusted) outcomes.set(claim, returned(claim));
          else unfinished.add(aggregateKey(claim.envelope));
        }
      });
      // What was found out about an event is of no account before those ahead of it in its aggregate have been sent.
      for (const [claim, outcome] of unsent) if (!unfinished.has(aggregateKey(claim.envelope))) outcomes.set(claim, outcome);
      const [known, left] = [part.claims.filter((claim) => outcomes.has(claim)), part.claims.filter((claim) => !outcomes.has(claim))];
      for (const claim of known) if (outcomes.get(claim)!.as !== "published") stopAt(part, outcomes.get(claim)!);
      return { outcomes: headsOnly(known.map((claim) => outcomes.get(claim)!)), left };
    },
  };
}

const returned = (claim: Claim): Outcome => ({ claim, as: "returned" });

/**
 * Only the first event of an aggregate that was not published is judged. What came after it was not sent, whatever
 * was found out about it beforehand: its own turn comes when the first one is settled.
 */
function headsOnly(outcomes: readonly Outcome[]): readonly Outcome[] {
  const stopped = new Set<string>();
  return outcomes.map((outcome) => {
    if (outcome.as === "published") return outcome;
    const aggregate = aggregateKey(outcome.claim.envelope);
    if (stopped.has(aggregate)) return { claim: outcome.claim, as: "returned" };
    stopped.add(aggregate);
    return outcome;
  });
}

const skipped: PublishResult = { status: "skipped" };

const noResult = (name: string): PublishResult => ({
  status: "unknown",
  error: new WaybillError("PUBLISH_UNKNOWN", `${name} gave no result`),
});

function sizeOf({ envelope, source }: Outgoing): number {
  let bytes = envelope.data.byteLength;
  for (const texts of [toAttributes(envelope, source), envelope.headers]) {
    for (const [name, value] of Object.entries(texts)) bytes += Buffer.byteLength(name) + Buffer.byteLength(value);
  }
  return bytes;
}
