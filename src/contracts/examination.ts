import type { Finding } from "../core/finding.ts";

export type { Finding } from "../core/finding.ts";

/** Stores and brokers whose live settings can be read. */
export interface Examination {
  /**
   * Reads, and changes nothing. Rejects only where the server cannot be reached; what it does not tell is a finding, and so is
   * each of these topics that a broker does not have. Stores have no topics.
   */
  examine(topics: readonly string[], signal: AbortSignal): Promise<readonly Finding[]>;
}
