import { createRequire } from "node:module";
import { dirname, join } from "node:path";

interface Opening {
  open: (this: Opening, ...given: unknown[]) => unknown;
  on(name: "error", listener: () => void): unknown;
}

let heard = false;

/**
 * The client's connections may fail in the bytes that open them, before anything else can listen: a fatal Close, or damaged bytes. Without a
 * listener, that error ends the process. The client does not export the class, and where it is bundled the class is out of reach.
 */
export function hearErrors(client: string): void {
  if (heard) return;
  heard = true;
  try {
    const load = createRequire(import.meta.url);
    const { Connection } = load(join(dirname(load.resolve(client)), "lib", "connection.js")) as { Connection: { prototype: Opening } };
    const { open } = Connection.prototype;
    Connection.prototype.open = function (...given) {
      this.on("error", () => undefined);
      return open.apply(this, given);
    };
  } catch {
    // As if this had not been called: connections that open in order are heard as before.
  }
}
