import type { Finding } from "../core/finding.ts";

/** What a server has so that a relay can read its log. */
export interface LogObject {
  readonly what: "publication" | "replication slot";
  readonly name: string;
}

/** What an operator does about a database's log. */
export interface TailSetup {
  /** What the server has for this outbox. */
  found(): Promise<readonly LogObject[]>;
  /** Statements for an administrator, where the relay's role may not make everything itself. Asks the server, and changes nothing. */
  print(): Promise<string>;
  /** Drops everything that `found` answers, and answers what it dropped. A reader is cut off. */
  remove(): Promise<readonly LogObject[]>;
  /**
   * Reads the settings that reading the log depends on, and changes nothing. No findings where nothing is prepared for reading the log,
   * unless it is `wanted`.
   */
  examine(wanted: boolean): Promise<readonly Finding[]>;
}
