import { systemClock } from "../../core/clock.ts";
import type { Draft } from "../../core/event.ts";
import { uuidv7 } from "../../core/ids.ts";
import { systemRandom } from "../../core/random.ts";
import type { Recorder } from "../judge/history.ts";
import { topicOf, typesOf, type Ground } from "./ground.ts";
import type { SubscriberTask } from "./task.ts";
import { aggregateName, canaryHeader, countHeader, shaOfDraft } from "./workload.ts";

interface Echoing {
  readonly task: SubscriberTask;
  readonly ground: Ground;
  readonly recorder: Recorder;
}

interface Heard {
  readonly id: string;
  readonly headers: Readonly<Record<string, string>>;
}

const newId = uuidv7(systemClock, systemRandom);
const echoHeader = "echo-of";

/** The same events whenever they are delivered. An echo has none, or there would be no end. */
export const isEchoed = ({ id, headers }: Heard, share: number): boolean =>
  headers[echoHeader] === undefined && parseInt(id.slice(-4), 16) / 0x10000 < share;

/**
 * Adds an event in the handler's transaction. All echoes are of one aggregate: a batch that locked the counters of several would deadlock
 * with writers. Only its beginning is recorded: whether the transaction was kept is read from the table of all that was written.
 */
export async function echo({ task, ground, recorder }: Echoing, tx: unknown, { id: of, headers: heard }: Heard): Promise<void> {
  const { tables } = ground;
  const ask = ground.within(tx);
  const aggregate = { aggregateType: typesOf(task.place)[0]!, aggregateId: "a-0" };
  const name = aggregateName(aggregate);
  await ask(`UPDATE ${tables.counters} SET n = n + 1 WHERE aggregate = ?`, [name]);
  const [row] = await ask(`SELECT n FROM ${tables.counters} WHERE aggregate = ?`, [name]);
  const n = Number(row?.["n"]);
  const id = newId();
  await ask(`INSERT INTO ${tables.written} (id, aggregate, n) VALUES (?, ?, ?)`, [id, name, n]);
  const headers = { [countHeader]: String(n), [canaryHeader]: heard[canaryHeader] ?? "", [echoHeader]: of };
  const draft: Draft = { ...aggregate, id, type: "Echoed", headers, payload: { n, of } };
  const written = { id, aggregate: name, topic: topicOf(name), n, sha: shaOfDraft(draft) };
  recorder.write("invoked", { op: "add", tx: `${task.name}-echo-${id}`, events: [written] });
  await ground.add(tx, [draft]);
}
