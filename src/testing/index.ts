export { createTestbed, type Testbed, type TestbedOptions, type TestbedStore } from "./testbed.ts";
export { manualClock, type ManualClock } from "./manual-clock.ts";
export type { Deliveries } from "./deliveries.ts";
export type { ExpectedEvent, TestEvent } from "./events.ts";
export type { DeliveryReport, ParkedEvent, SubscriberUnderTest } from "./run-subscriber.ts";
export type { Publishing } from "./publishing.ts";
