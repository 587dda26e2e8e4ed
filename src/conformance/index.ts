export type { AuditLine, HostileRow, OpenTransaction, StoreCan, StoreHarness, StoreSuite, SuiteClock, Test } from "./harness.ts";
export { inboxSuite } from "./inbox.ts";
export { leaseStoreSuite } from "./lease-store.ts";
export { operatorSuite } from "./operator.ts";
export { outboxStoreSuite } from "./outbox-store.ts";
export { schemaSuite } from "./schema.ts";
export { serviceSuite, type ServiceSuite } from "./service.ts";
export { sinkSuite, type SinkHarness, type SinkSuite, type StoredMessage } from "./sink.ts";
export { sourceSuite, type SourceHarness, type SourceSuite } from "./source.ts";
