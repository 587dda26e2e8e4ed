import { Conflict } from "../core/blameless.ts";
import { WaybillError } from "../core/errors.ts";
import { markable } from "../core/letter.ts";
import { acknowledge, slowMs } from "./deliver.ts";
import { graceMs, type Path, type Taken } from "./persist.ts";
import type { Turn } from "./turns.ts";

/** A delivery that may share its transaction with others. `done` is called with true if it was acknowledged. */
export interface Member extends Omit<Taken, "turn"> {
  readonly done: (acked: boolean) => void;
}

/** The event's id. Null for a delivery that goes by itself: a letter, no event, without a handler, or waiting for its next attempt. */
export function sharedName<Tx>(path: Path<Tx>, { delivery }: Member): string | null {
  const { id, type } = delivery.envelope;
  const goes = delivery.unreadable === undefined && delivery.letter === undefined && path.handles(type) && markable(id);
  return goes && (path.resting.get(id) ?? 0) <= path.clock.monotonic() ? id : null;
}

/**
 * Commits the marks and effects of all members together, then acknowledges each. False: something failed, and nothing was kept. Then each
 * member is delivered by itself, which shows whose failure it is. The failed batch costs no attempt. After a conflict with another
 * transaction it is tried once more, when the gate lets it through.
 */
export async function deliverTogether<Tx>(path: Path<Tx>, members: readonly Member[], turn: Turn): Promise<boolean> {
  const [{ delivery }] = members as [Member];
  for (let tries = 1; ; tries++) {
    try {
      await path.gate.run(async () => {
        // It may have waited at the gate while another process took its place over.
        if (!ours(members)) throw givenUp();
        return once(path, members);
      });
      break;
    } catch (error) {
      if (!(error instanceof Conflict)) return false;
      path.troubles.met("once", error, delivery.topic);
      if (tries === 2) return false;
    }
  }
  path.troubles.over("once", delivery.topic);
  for (const { done, ...post } of members) done(await acknowledge(path, { ...post, turn }, "after-effect"));
  return true;
}

const ours = (members: readonly Member[]): boolean => members.every(({ session }) => session.ours());
const givenUp = (): WaybillError => new WaybillError("STOPPED", "a batch was given up before its handlers began");

async function once<Tx>(path: Path<Tx>, members: readonly Member[]): Promise<void> {
  const { consumer, clock, failpoints, handlerTimeoutMs } = path;
  const from = clock.monotonic();
  const [id, ...also] = members.map(({ delivery }) => delivery.envelope.id) as [string, ...string[]];
  const step = path.progress.begin({ name: "once", topic: members[0]!.delivery.topic, id }, path.concurrency * handlerTimeoutMs + graceMs);
  let applied: ReadonlySet<string> = new Set();
  try {
    await failpoints.hit("before-handle", [id, ...also]);
    await path.inbox.once({ consumer, id, also }, path.handlerVersion, async (_tx, fresh, next) => {
      if (!ours(members)) throw givenUp();
      applied = fresh;
      step.extend(handlerTimeoutMs + graceMs);
      const onSlow = (): void => members.forEach(({ hold }) => hold());
      const deliveries = members.map(({ delivery }) => delivery).filter(({ envelope }) => fresh.has(envelope.id));
      await path.inTime({ slowMs, ms: handlerTimeoutMs, onSlow }, async (signal) => {
        for (const call of path.calls(deliveries)) {
          signal.throwIfAborted();
          const own = await next(call.map(({ envelope }) => envelope.id));
          signal.throwIfAborted();
          await path.handle(call, own, signal);
        }
      });
      await failpoints.hit("before-commit", [...fresh]);
      step.extend(graceMs);
    });
  } finally {
    step.end();
  }
  path.inboxHealth.successes += 1;
  const ms = clock.monotonic() - from;
  for (const { delivery } of members) {
    const { id: event, type: eventType } = delivery.envelope;
    path.observe({ type: "subscriber.handled", consumer, id: event, eventType, first: applied.has(event), ms });
  }
}
