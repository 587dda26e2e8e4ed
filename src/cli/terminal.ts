import type { Adapters } from "./adapters.ts";
import type { Config } from "./config.ts";
import type { Output } from "./output.ts";
import type { Audience } from "../dev/show.ts";

/** What a command sees of the world around it. */
export interface Terminal extends Audience {
  readonly out: Output;
  readonly config: Config;
  readonly adapters: Adapters;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Where the command was started. */
  readonly cwd: string;
  /** Asks for one line. Null when the input ends. Present only where a person sits at a terminal. */
  readonly ask?: (question: string) => Promise<string | null>;
  /** Everything on standard input. */
  stdin(): Promise<Uint8Array>;
}
