import type { Sink } from "../contracts/sink.ts";
import type { Delivery, Source } from "../contracts/source.ts";
import type { Envelope } from "../core/event.ts";

/** What becomes of deliveries and acks on their way. */
export type DeliveryFault = "none" | "twice" | "lost-acks";

interface WatchedSource {
  readonly source: Source & Sink;
  /** Everything that the broker has for these topics was delivered and acknowledged, or the prefetch is used up. */
  idle(topics: readonly string[]): boolean;
  readonly delivered: ReadonlyMap<string, Envelope>;
}

interface Session {
  /** The broker has been asked for the next delivery and has none. */
  waiting: boolean;
  unacked: number;
}

/** The broker as one subscriber process sees it. */
export function watchedSource(broker: Source & Sink, fault: DeliveryFault): WatchedSource {
  const sessions = new Map<string, Session>();
  const delivered = new Map<string, Envelope>();

  const handOver = (session: Session, delivery: Delivery, arrives: boolean): Delivery => {
    let acked = false;
    session.unacked++;
    return {
      ...delivery,
      async ack() {
        if (!acked) session.unacked--;
        acked = true;
        if (arrives) await delivery.ack();
      },
    };
  };

  return {
    delivered,
    idle: (topics) =>
      topics.every((topic) => {
        const session = sessions.get(topic);
        return session?.waiting === true && session.unacked === 0;
      }),
    source: {
      ...broker,
      async *receive(subscription, signal) {
        const session: Session = { waiting: false, unacked: 0 };
        for (const topic of subscription.topics) sessions.set(topic, session);
        const deliveries = broker.receive(subscription, signal)[Symbol.asyncIterator]();
        try {
          for (;;) {
            session.waiting = true;
            const next = await deliveries.next();
            session.waiting = false;
            if (next.done === true) return;
            delivered.set(next.value.envelope.id, next.value.envelope);
            if (fault === "twice") yield handOver(session, next.value, false);
            yield handOver(session, next.value, fault !== "lost-acks");
          }
        } finally {
          for (const topic of subscription.topics) if (sessions.get(topic) === session) sessions.delete(topic);
          await deliveries.return?.();
        }
      },
    },
  };
}
