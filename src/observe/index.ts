export { lineOf, logTo, type Logger, type LogLine } from "../core/log.ts";
export type { LookedAt } from "./consumer-gauges.ts";
export type { ConsumerTopics, KnownConsumer } from "./known.ts";
export { createMetrics, type Metrics } from "./metrics.ts";
export { observers } from "./observers.ts";
export { servePages, type PagesOptions } from "./pages.ts";
export type { HttpServer } from "./http.ts";
export { withAges, withIds } from "../core/path-events.ts";
