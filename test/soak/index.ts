import { cpSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { shared } from "../../src/core/time.ts";
import { readFlags } from "./flags.ts";
import { commandOf, composition, legOf, narrowed, special, tell } from "./plan.ts";

/** The whole path under random composition, faults and switches, leg after leg: `npm run test:soak -- --minutes 60`. */

const { minutes, seed, leg: only, choice, narrowing, cut, plan } = readFlags();
const root = fileURLToPath(new URL("../../", import.meta.url));

const secondsOf = (nth: number): number => narrowed(legOf(seed, nth, choice), cut).seconds;
/** Servers are started and ended, and everything comes to rest, is read and judged. */
const besidesSeconds = 40;

if (plan) {
  let left = minutes * 60;
  for (let nth = only ?? 0; nth === (only ?? 0) || (only === null && left > 0); nth++) {
    console.log(tell(narrowed(legOf(seed, nth, choice), cut)).join("\n"));
    left -= secondsOf(nth) + besidesSeconds;
  }
  process.exit(0);
}

// All servers and their clients are behind these: whoever asks wrongly hears it before they are loaded.
const { play } = await import("./play.ts");
const { reduce } = await import("./reduce.ts");
const { growthOver, useOf } = await import("./watch.ts");
const { built } = await import("../cli/build.ts");
type Played = Awaited<ReturnType<typeof play>>;

/** A copy of the build, so that nobody's next one changes it under a run that takes hours. */
async function ownBuild(): Promise<string> {
  await built();
  const dist = join(root, ".cache/soak", `dist-${process.pid}`);
  mkdirSync(dist, { recursive: true });
  cpSync(join(root, "dist"), dist, { recursive: true });
  process.on("exit", () => rmSync(dist, { recursive: true, force: true }));
  return join(dist, "cli/verify/worker.js");
}

/** The first signal lets the leg at hand put away what it has made; the second ends at once, and supervisors end the servers. */
const ending = shared(new AbortController());
let code: number | null = null;
for (const [name, number] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  process.on(name, () => {
    if (code !== null) process.exit(number);
    code = number;
    ending.abort();
  });
}

function line({ leg, held, counts, caused, watched, restMs, seconds, failures, notes }: Played): string {
  const asSeconds = (ms: number): string => `${Math.round(ms / 100) / 10} s`;
  const figures = [
    counts === null ? "nothing counted" : `${counts.events} events, ${counts.copies} copies`,
    `${caused.length} of ${leg.faults.length} faults`,
    ...(watched === null
      ? []
      : [`worst lag ${asSeconds(watched.worstLagMs)}`, `RSS ${watched.worstRssMiB} MiB`, `${watched.worstFiles} files`]),
    `at rest after ${asSeconds(restMs)}`,
    `${seconds} s`,
  ];
  return [
    `${held ? "held    " : "NOT HELD"} leg ${leg.nth} of seed ${seed}: ${composition(leg)}; ${special(leg) || "all plain"}: ${figures.join(", ")}`,
    ...failures.map(({ invariant, verdict, why }) => `         ${invariant} ${verdict}: ${why}`),
    ...notes.map((note) => `         note: ${note}`),
  ].join("\n");
}

const playing = { program: await ownBuild(), signal: ending.signal };
const began = performance.now();
const isOver = (afterMs: number): boolean => performance.now() - began > afterMs || ending.signal.aborted;
const minutesMs = minutes * 60_000;
const failed: { readonly played: Played; readonly command: string }[] = [];
const totals = { legs: 0, events: 0, copies: 0, faults: 0 };
const own = [useOf("self", 0)].filter((use) => use !== null);
const stuck: string[] = [];

async function shortestOf(played: Played): Promise<void> {
  const full = legOf(seed, played.leg.nth, choice);
  const until = performance.now() + Math.max(10 * 60_000, minutesMs);
  console.log(`         ${commandOf(full, cut, narrowing)}`);
  console.log(`         its histories: ${played.folder ?? "not kept"}; now it is made smaller`);
  const reduced = await reduce({
    ...{ leg: full, cut, failed: played },
    // What never comes to rest must not cost all the time there is.
    play: (leg) => play(leg, { ...playing, restMs: 60_000 }),
    signal: ending.signal,
    isOver: () => performance.now() > until || ending.signal.aborted,
    tried: (smaller, result, alike) =>
      console.log(`         ${alike ? "fails too" : "does not fail"}: ${commandOf(full, smaller, narrowing)} (${result.seconds} s)`),
    forget: ({ folder }) => (folder === null ? undefined : rmSync(folder, { recursive: true, force: true })),
  });
  const command = commandOf(full, reduced.cut, narrowing);
  console.log(`         the shortest of ${reduced.tries + 1} plans that fails: ${command}`);
  console.log(
    tell(reduced.played.leg)
      .map((text) => `           ${text}`)
      .join("\n"),
  );
  console.log(`         its histories: ${reduced.played.folder ?? "not kept"}`);
  failed.push({ played: reduced.played, command });
}

const most = only === null ? Infinity : 1;
console.log(
  `seed ${seed}, ${only === null ? `legs for ${minutes} minutes` : `leg ${only}`}${narrowing.map((each) => `, ${each}`).join("")}`,
);
for (
  let nth = only ?? 0;
  totals.legs < most && (totals.legs === 0 || !isOver(minutesMs - (secondsOf(nth) + besidesSeconds) * 1_000));
  nth++
) {
  const played = await play(narrowed(legOf(seed, nth, choice), cut), playing);
  if (ending.signal.aborted) break;
  totals.legs += 1;
  totals.events += played.counts?.events ?? 0;
  totals.copies += played.counts?.copies ?? 0;
  totals.faults += played.caused.length;
  own.push(...[useOf("self", performance.now() - began)].filter((use) => use !== null));
  console.log(line(played));
  if (!played.held) await shortestOf(played);
}
const growth = growthOver(own);
if (growth !== null) stuck.push(growth);
const [first, last] = [own[0], own.at(-1)];
const ownWords =
  first === undefined || last === undefined ? "" : `; the soak itself: ${first.files} to ${last.files} open files, ${last.rssMiB} MiB`;
console.log(
  `${totals.legs} legs in ${Math.round((performance.now() - began) / 6_000) / 10} minutes, ${totals.events} events, ${totals.copies} copies, ${totals.faults} faults, ${failed.length} legs did not hold${ownWords}`,
);
for (const { command } of failed) console.log(`to play it again:  ${command}`);
for (const why of stuck) console.log(why);
process.exit(code ?? (failed.length + stuck.length === 0 ? 0 : 1));
