import type { Direction, TcpProxy } from "../../../src/proof/run/tcp-proxy.ts";
import type { WorkerDuty } from "../../../src/proof/run/workers.ts";
import type { Pair } from "./pairs.ts";
import { freezeCopies } from "./rounds.ts";
import type { Stage } from "./row.ts";

const processKinds = ["kill relay", "kill subscriber", "kill writer", "freeze relay"] as const;
const linkKinds = ["black hole", "cut", "server killed"] as const;

/** Where there is a server, and not only a file. */
const reachedIn = ({ store, broker }: Pair): readonly ("store" | "broker")[] => [
  ...(store === "sqlite" ? [] : ["store" as const]),
  ...(broker === "embedded" ? [] : ["broker" as const]),
];

export const mixOf = (pair: Pair): readonly string[] => [
  ...processKinds,
  ...reachedIn(pair).flatMap((which) => linkKinds.map((kind) => `${kind}: ${which}`)),
];

const cutMs = 3_000;

/** Some bytes more pass, then connections are reset. False when that is not seen in time. The link is to be healed afterwards. */
export async function cut({ clock }: Stage, link: TcpProxy, direction: Direction, after: number): Promise<boolean> {
  const open = link.connections;
  link.fault(direction, { cutAfter: after });
  for (const until = clock.monotonic() + cutMs; clock.monotonic() < until; await clock.sleep(2)) if (link.connections < open) return true;
  return false;
}

interface Step {
  readonly kind: string;
  readonly copies: number;
  /** Says whether it really happened. */
  work(): Promise<boolean>;
}

function stepsOf(stage: Stage): readonly Step[] {
  const { clock, random, workers, window } = stage;
  const below = (n: number): number => Math.floor(random.next() * n);
  const one = (role: WorkerDuty["role"]): string => stage.names(role)[below(stage.names(role).length)]!;
  const kill = (role: WorkerDuty["role"], copies: number): Step => ({
    kind: `kill ${role}`,
    copies,
    work: async () => workers.kill(one(role)),
  });
  const links = reachedIn(stage.pair).flatMap((which): readonly Step[] => {
    const { link, server } = stage[which];
    // Every relay may lose what it has in flight, or the right to settle it.
    const step = (kind: (typeof linkKinds)[number], work: Step["work"]): Step => ({ kind: `${kind}: ${which}`, copies: 2 * window, work });
    return [
      step("black hole", async () => {
        for (const direction of ["up", "down"] as const) link!.fault(direction, { hold: true });
        await clock.sleep(1_000 + below(1_500));
        link!.heal();
        return true;
      }),
      step("cut", async () => {
        const isCut = await cut(stage, link!, below(2) === 0 ? "up" : "down", 500 + below(3_000));
        link!.heal();
        return isCut;
      }),
      step("server killed", async () => {
        await server!.kill9();
        await clock.sleep(300);
        await server!.start();
        return true;
      }),
    ];
  });
  return [
    ...[kill("relay", window), kill("subscriber", 0), kill("writer", 0)],
    {
      kind: "freeze relay",
      copies: freezeCopies(stage),
      async work() {
        const name = one("relay");
        const isFrozen = workers.freeze(name);
        await clock.sleep(stage.leaseMs * 1.3);
        workers.thaw(name);
        return isFrozen;
      },
    },
    ...links,
  ];
}

/** Every kind in its turn, shuffled: once at least, however long that takes, then again until the load ends. */
export async function mixed(stage: Stage): Promise<void> {
  const { random, clock, signal } = stage;
  const deck = stepsOf(stage)
    .map((step) => [random.next(), step] as const)
    .sort(([a], [b]) => a - b)
    .map(([, step]) => step);
  for (let at = 0; stage.on() || (at < deck.length && !signal.aborted); at++) {
    await clock.sleep(300 + random.next() * 500);
    const { kind, copies, work } = deck[at % deck.length]!;
    const fault = stage.fault({ fault: kind, target: "one", copies });
    // One that is about to be started again can neither be killed nor frozen.
    let happened = false;
    for (let tries = 0; tries < 3 && !happened && !signal.aborted; tries++) {
      if (tries > 0) await clock.sleep(400);
      happened = await work();
    }
    fault.ended();
    if (happened) stage.once(kind);
  }
}
