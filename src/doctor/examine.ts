import type { Adapter } from "../contracts/adapter.ts";
import type { ConsumerState } from "../contracts/consumers.ts";
import type { Examination, Finding } from "../contracts/doctor.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Store } from "../contracts/store.ts";
import { systemClock } from "../core/clock.ts";
import { asError } from "../core/errors.ts";
import { applyRules, bad, good, unknown } from "../core/finding.ts";
import { redactText } from "../core/text.ts";
import { never, withDeadline } from "../core/time.ts";
import { consumerRules, inboxRules } from "./consumer-rules.ts";
import { pathRules, wayRules, type WayAnswers } from "./rules.ts";

/** A finding and its owner. `path` means how the store and the broker fit together. */
export interface OwnedFinding extends Finding {
  readonly of: "store" | "broker" | "path" | "consumer";
}

/** Timeout of the broker's examination, and of each probe of a dead-letter topic. */
const patienceMs = 30_000;

/** Servers may quote what the client sent, such as an address with a password. */
export const foundOf =
  (of: OwnedFinding["of"]) =>
  (finding: Finding): OwnedFinding => ({
    of,
    ...finding,
    value: finding.value === null ? null : redactText(finding.value),
    why: redactText(finding.why),
  });

export const examineStore = async (store: Partial<Examination>): Promise<readonly OwnedFinding[]> =>
  ((await store.examine?.([], never)) ?? []).map(foundOf("store"));

/** What reading the database's log depends on. `wanted`: relays are to read it. */
export async function examineLog({ tail }: Pick<Store<never>, "tail">, wanted: boolean): Promise<readonly OwnedFinding[]> {
  const found = await tail?.setup.examine(wanted).catch((error: unknown) => [unknown("log", null, asError(error).message)]);
  return (found ?? []).map(foundOf("store"));
}

/** The sink knows its largest message once it has been connected. */
export async function examineBroker(sink: Sink & Partial<Examination>, topics: readonly string[]): Promise<readonly OwnedFinding[]> {
  const own = await withDeadline(
    systemClock,
    patienceMs,
    never,
    (signal) => sink.examine?.(topics, signal) ?? probeEach(sink, topics, signal),
  );
  return [...own.map(foundOf("broker")), ...applyRules(pathRules, { maxBytes: sink.can.maxBytes, topics }).map(foundOf("path"))];
}

/** Probes the topics of a sink that does not report its settings. */
async function probeEach(sink: Sink, topics: readonly string[], signal: AbortSignal): Promise<readonly Finding[]> {
  await sink.connect(signal);
  const found = [unknown("settings", null, `The broker ${sink.name} has no examine, so nothing looked at its settings.`)];
  for (const topic of topics) {
    try {
      await sink.probe(topic, signal);
      found.push(good(`topic ${topic}`, "there", "The broker says that it takes messages."));
    } catch (error) {
      found.push(bad(`topic ${topic}`, null, "I", `Events for it wait: ${asError(error).message}`));
    }
  }
  return found;
}

/** What an inbox and a broker say of a consumer. Either may be left out. */
export interface ConsumerPlaces {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly state: ConsumerState | null;
  readonly broker: { readonly sink: Sink; lag(topic: string): Promise<number | null> } | null;
  /** The dead-letter topic of a topic; null where the inbox keeps letters. */
  readonly deadTopic: ((topic: string) => string) | null;
}

export async function examineConsumer(places: ConsumerPlaces): Promise<readonly OwnedFinding[]> {
  const { consumer, topics, state, broker, deadTopic } = places;
  const found = [...applyRules(inboxRules, { consumer, state })];
  for (const topic of broker === null ? [] : topics) {
    const lag = await broker!.lag(topic).catch(asError); // the other findings are reported all the same
    const letters = deadTopic === null ? null : { topic: deadTopic(topic), error: await probed(broker!.sink, deadTopic(topic)) };
    found.push(...applyRules(consumerRules, { consumer, topic, lag, letters }, topic));
  }
  return found.map(foundOf("consumer"));
}

const probed = (sink: Sink, topic: string): Promise<string | null> =>
  withDeadline(systemClock, patienceMs, never, async (signal) => {
    await sink.connect(signal);
    return sink.probe(topic, signal).then(
      () => null,
      (error: unknown) => asError(error).message,
    );
  });

/** Could an attacker on the network read or change what is sent? No findings for a file. */
export const examineWay = (of: OwnedFinding["of"], url: string, { server }: Adapter, env: WayAnswers["env"]): readonly OwnedFinding[] =>
  server === null ? [] : applyRules(wayRules, { url, server, env }).map(foundOf(of));
