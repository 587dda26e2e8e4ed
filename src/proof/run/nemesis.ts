import { inWords } from "../../core/in-words.ts";
import type { Random } from "../../core/random.ts";
import type { Entry } from "../judge/history.ts";
import { trouble, type Network, type NetworkTrouble } from "./network.ts";
import type { RunScene } from "./run.ts";
import type { WorkerDuty } from "./workers.ts";

/** A fault of processes, or of the network between them and a server, never of the server itself. */
type Kind =
  | { readonly what: "kill" | "freeze"; readonly role: WorkerDuty["role"] }
  | { readonly what: NetworkTrouble; readonly of: "store" | "broker" };

export interface Nemesis {
  readonly networks: Readonly<Record<"store" | "broker", Network | null>>;
  /** A process that stands still may have the store locked for all others. */
  readonly oneWriter: boolean;
  readonly leaseMs: number;
  readonly forMs: number;
  /** Called before the fault happens. */
  announce(text: string): void;
}

export function kindsOf({ store, broker }: Nemesis["networks"]): readonly Kind[] {
  const roles = ["relay", "subscriber", "writer"] as const;
  const links = [...(store === null ? [] : ["store" as const]), ...(broker === null ? [] : ["broker" as const])];
  return [
    ...roles.map((role) => ({ what: "kill", role }) as const),
    ...roles.map((role) => ({ what: "freeze", role }) as const),
    ...links.flatMap((of) => (["latency", "black hole", "cut", "reset"] as const).map((what) => ({ what, of }))),
  ];
}

/** The kinds of which the history has no fault. */
export function unmetOf(kinds: readonly Kind[], history: readonly Entry[]): readonly string[] {
  const met = new Set(history.flatMap((entry) => (entry.op === "fault" ? [`${entry.fault} of ${entry.target.replace(/-\d+$/, "")}`] : [])));
  return kinds.map((kind) => `${kind.what} of ${"role" in kind ? kind.role : linkTo(kind.of)}`).filter((name) => !met.has(name));
}

const linkTo = (of: "store" | "broker"): string => `the link to the ${of}`;

const calmMs = 1_200;

/** Every kind in shuffled order, again and again until the time is over. Each fault is healed before the next. */
export async function torment(scene: RunScene, nemesis: Nemesis): Promise<void> {
  const { clock, random, signal } = scene;
  const until = clock.monotonic() + nemesis.forMs;
  const left = (): number => until - clock.monotonic();
  let caused = false;
  for (let deck: readonly Kind[] = []; left() > 0 && !signal.aborted;) {
    if (deck.length === 0) deck = shuffled(kindsOf(nemesis.networks), random);
    await clock.sleep(Math.min(left(), calmMs * (0.5 + random.next())), signal);
    // At least one fault, however late it is: a run without a fault shows nothing.
    if ((left() <= 0 && caused) || signal.aborted) return;
    caused = true;
    const [kind, ...others] = deck;
    deck = others;
    await cause(scene, nemesis, kind!);
  }
}

function shuffled<T>(of: readonly T[], random: Random): readonly T[] {
  return of
    .map((each) => [random.next(), each] as const)
    .sort(([a], [b]) => a - b)
    .map(([, each]) => each);
}

async function cause(scene: RunScene, nemesis: Nemesis, kind: Kind): Promise<void> {
  const { workers, clock, random, signal } = scene;
  /** Every relay may lose what it has in flight, or the right to settle it. */
  const everybodys = scene.window * scene.names("relay").length;
  if ("of" in kind) {
    const forMs = kind.what === "reset" ? 0 : 300 + random.next() * nemesis.leaseMs * 1.3;
    const target = linkTo(kind.of);
    nemesis.announce(`${target}: ${kind.what}${forMs === 0 ? "" : ` for ${inWords(Math.round(forMs / 100) * 100)}`}`);
    const fault = scene.fault({ fault: kind.what, target, copies: everybodys });
    const network = nemesis.networks[kind.of]!;
    trouble(network, kind.what, random.next());
    await clock.sleep(forMs, signal);
    network.proxy.heal();
    return fault.ended();
  }
  const names = scene.names(kind.role);
  const victim = names[Math.floor(random.next() * names.length)]!;
  const copies = kind.role === "relay" ? scene.window : 0;
  if (kind.what === "kill") {
    nemesis.announce(`${victim} is killed`);
    const fault = scene.fault({ fault: "kill", target: victim, copies });
    workers.kill(victim);
    return fault.ended();
  }
  // Sometimes longer than its lease, so that other processes take over before it wakes.
  const forMs = nemesis.leaseMs * (0.2 + random.next() * 1.4);
  nemesis.announce(`${victim} stands still for ${inWords(Math.round(forMs / 100) * 100)}`);
  const fault = scene.fault({ fault: "freeze", target: victim, copies: nemesis.oneWriter ? everybodys : copies });
  workers.freeze(victim);
  await clock.sleep(forMs, signal);
  workers.thaw(victim);
  fault.ended();
}
