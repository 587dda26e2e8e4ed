import type { Names } from "./names.ts";

const written =
  "id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at";

const aboutProcess = `
-- PROCESS shows the relay every session of this server, of other applications too, with the text of the statement that it runs.
-- The relay reads only which transactions are open, and so where its scans may begin. You can leave this grant out:
-- then claims get slower as published rows pile up, and the relay cannot name a transaction that holds events back.
`;

/** The least that each role needs, one statement each. The role names are examples, for the administrator to replace. */
export function grants(n: Names, partitioned: boolean): readonly string[] {
  const partitions = (role: string): string[] =>
    partitioned
      ? [
          `GRANT ALTER, CREATE, DROP, INSERT, UPDATE (placed_at) ON ${n.outbox} TO ${role}`,
          `GRANT LOCK TABLES ON ${n.schema === null ? "*" : `${n.quotedSchema}.*`} TO ${role}`,
        ]
      : [];
  const each = (what: string, tables: readonly string[], role: string): string[] =>
    tables.map((table) => `GRANT ${what} ON ${table} TO ${role}`);
  return [
    // Writer: the services that add events.
    "CREATE ROLE IF NOT EXISTS waybill_writer",
    `GRANT INSERT (${written}) ON ${n.outbox} TO waybill_writer`,
    // Relay: claims, settles, and purges published events.
    "CREATE ROLE IF NOT EXISTS waybill_relay",
    `GRANT SELECT, DELETE, UPDATE (status, retry_count, next_attempt_at, last_error, error_code, error_detail, published_at) ON ${n.outbox} TO waybill_relay`,
    ...each("SELECT, INSERT, UPDATE, DELETE", [n.relays, n.windows, n.suspects, n.holds, n.destinations], "waybill_relay"),
    `GRANT SELECT, UPDATE ON ${n.lanes} TO waybill_relay`,
    `GRANT SELECT, DELETE ON ${n.keys} TO waybill_relay`,
    ...each("SELECT", [n.meta, n.events], "waybill_relay"),
    // To report consumers on its metrics page.
    ...each("SELECT", [n.attempts, n.seats, n.letters], "waybill_relay"),
    `GRANT INSERT ON ${n.audit} TO waybill_relay`,
    `${aboutProcess}GRANT PROCESS ON *.* TO waybill_relay`,
    // With partitions, the relay creates and drops them. The server requires all of these privileges for that.
    ...partitions("waybill_relay"),
    // Subscriber: the inbox, beside whatever its handlers need.
    "CREATE ROLE IF NOT EXISTS waybill_subscriber",
    ...each("SELECT, INSERT, UPDATE, DELETE", [n.inbox, n.attempts, n.seats, n.letters], "waybill_subscriber"),
    `GRANT SELECT ON ${n.meta} TO waybill_subscriber`,
    // Operator: reads everything, redrives, discards and purges, letters included.
    "CREATE ROLE IF NOT EXISTS waybill_operator",
    `GRANT SELECT, DELETE, UPDATE (status, retry_count, next_attempt_at) ON ${n.outbox} TO waybill_operator`,
    ...each(
      "SELECT",
      [n.relays, n.windows, n.suspects, n.destinations, n.meta, n.events, n.inbox, n.attempts, n.seats, n.letters],
      "waybill_operator",
    ),
    ...each("SELECT, UPDATE", [n.lanes, n.holds], "waybill_operator"),
    `GRANT SELECT, DELETE ON ${n.keys} TO waybill_operator`,
    `GRANT SELECT, INSERT ON ${n.audit} TO waybill_operator`,
    `GRANT DELETE, UPDATE (redriven_at) ON ${n.letters} TO waybill_operator`,
    ...partitions("waybill_operator"),
  ];
}
