import type { Servers } from "../faults/matrix/stage.ts";
import { startBroker, startStore, type Reached } from "../faults/matrix/servers.ts";
import { versions } from "../faults/matrix/versions.ts";
import type { Leg } from "./plan.ts";

/** The servers of one leg, in its versions, started when they are asked for. A version that cannot be had is replaced by the usual one. */
export function serversOf({ store, broker }: Leg, note: (text: string) => void): Servers {
  const started = new Map<string, Promise<Reached>>();
  const once = <T extends Reached>(
    name: Leg["store"]["name"] | Leg["broker"]["name"],
    start: (version: string) => Promise<T>,
  ): Promise<T> => {
    const there = started.get(name) as Promise<T> | undefined;
    if (there !== undefined) return there;
    const { version } = name === store.name ? store : broker;
    const usual = versions[name][0];
    const starting = start(version).catch((error: unknown) => {
      if (version === usual) throw error;
      note(`${name} ${version} could not be started, and ${usual} was instead: ${String((error as Error).message).split("\n")[0]!}`);
      return start(usual);
    });
    started.set(name, starting);
    return starting;
  };
  const drop = async (name: string): Promise<void> => {
    const server = started.get(name);
    started.delete(name);
    await (await server?.catch(() => null))?.[Symbol.asyncDispose]();
  };
  return {
    store: (name) => once(name, (version) => startStore(name, version)),
    broker: (name) => once(name, (version) => startBroker(name, version)),
    drop,
    async [Symbol.asyncDispose]() {
      await Promise.all([...started.keys()].map(drop));
    },
  };
}
