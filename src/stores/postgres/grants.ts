import type { Names } from "./names.ts";

const written =
  "id, aggregate_type, aggregate_id, event_type, event_version, payload, payload_bytes, content_type, headers, idempotency_key, available_at";

/** The least that each role needs. The role names are examples, for the operator to replace. */
export function grants(n: Names, partitioned: boolean): string {
  const partitions = (role: string): string =>
    partitioned
      ? `GRANT EXECUTE ON FUNCTION ${n.add_partitions}(integer), ${n.drop_partition}(timestamptz, boolean, text[]) TO ${role};\n`
      : "";
  return `-- Roles. Create them, or put your own in their place.
-- Writer: the services that add events. It may insert, and read nothing.
GRANT USAGE ON SCHEMA ${n.schema} TO waybill_writer;
GRANT INSERT (${written}) ON ${n.outbox} TO waybill_writer;
GRANT USAGE ON SEQUENCE ${n.seq} TO waybill_writer;
GRANT EXECUTE ON FUNCTION ${n.add}(json) TO waybill_writer;
-- Relay: claims and settles, and purges what is published. To see for how long others hold the tables back, it also
-- needs what a superuser gives: GRANT pg_read_all_stats TO waybill_relay; and the same for the operator.
GRANT USAGE ON SCHEMA ${n.schema} TO waybill_relay;
GRANT SELECT, DELETE, UPDATE (status, retry_count, next_attempt_at, last_error, error_code, error_detail, published_at) ON ${n.outbox} TO waybill_relay;
GRANT SELECT ON SEQUENCE ${n.seq} TO waybill_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON ${n.relays}, ${n.windows}, ${n.suspects}, ${n.holds}, ${n.destinations} TO waybill_relay;
GRANT SELECT, UPDATE ON ${n.lanes}, ${n.tail} TO waybill_relay;
GRANT SELECT, INSERT, DELETE ON ${n.tail_marks} TO waybill_relay;
GRANT SELECT, DELETE, UPDATE (created_at) ON ${n.keys} TO waybill_relay;
GRANT SELECT ON ${n.meta}, ${n.events} TO waybill_relay;
-- To report consumers on its metrics page. You can leave this out.
GRANT SELECT ON ${n.attempts}, ${n.seats}, ${n.letters} TO waybill_relay;
GRANT INSERT ON ${n.audit} TO waybill_relay;
${partitions("waybill_relay")}-- Subscriber: the inbox, beside whatever its handlers need.
GRANT USAGE ON SCHEMA ${n.schema} TO waybill_subscriber;
GRANT SELECT, INSERT, UPDATE, DELETE ON ${n.inbox}, ${n.attempts}, ${n.seats}, ${n.letters} TO waybill_subscriber;
GRANT SELECT ON ${n.meta} TO waybill_subscriber;
-- Operator: reads everything, redrives, discards and purges, letters included.
GRANT USAGE ON SCHEMA ${n.schema} TO waybill_operator;
GRANT SELECT, DELETE, UPDATE (status, retry_count, next_attempt_at) ON ${n.outbox} TO waybill_operator;
GRANT SELECT ON ${n.relays}, ${n.windows}, ${n.suspects}, ${n.destinations}, ${n.meta}, ${n.events}, ${n.inbox}, ${n.attempts}, ${n.seats}, ${n.letters}, ${n.tail} TO waybill_operator;
GRANT SELECT, DELETE ON ${n.tail_marks} TO waybill_operator;
GRANT SELECT, UPDATE ON ${n.lanes}, ${n.holds} TO waybill_operator;
GRANT SELECT, DELETE, UPDATE (created_at) ON ${n.keys} TO waybill_operator;
GRANT SELECT, INSERT ON ${n.audit} TO waybill_operator;
GRANT DELETE, UPDATE (redriven_at) ON ${n.letters} TO waybill_operator;
${partitions("waybill_operator")}`;
}
