import type { Finding } from "../core/finding.ts";

export type { Finding, Rule, Say } from "../core/finding.ts";

/** Stores and brokers whose live settings can be read. */
export interface Examination {
  /**
   * Reads settings, and changes nothing. Rejects only when the server cannot be reached. A setting that the server does not reveal is a
   * finding, and so is each of these topics that the broker lacks. Stores have no topics.
   */
  examine(topics: readonly string[], signal: AbortSignal): Promise<readonly Finding[]>;
}
