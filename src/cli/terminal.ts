import type { Adapters } from "./adapters.ts";
import type { Config } from "./config.ts";
import type { Output } from "./output.ts";

/** A terminal that can be drawn on. */
export interface Screen {
  size(): { readonly columns: number; readonly rows: number };
  write(text: string): void;
  readonly colour: boolean;
}

/** What a command sees of the world around it. */
export interface Terminal {
  readonly out: Output;
  readonly config: Config;
  readonly adapters: Adapters;
  /** Only where standard output is a terminal. */
  readonly screen?: Screen;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Everything on standard input. */
  stdin(): Promise<Uint8Array>;
  /** Tells of each SIGTERM, SIGINT and SIGHUP, with its number: the first asks to finish, the second insists. */
  onSignal(listener: (nth: number) => void): void;
}
