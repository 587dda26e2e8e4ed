import { asError } from "../../../core/errors.ts";
import { orAborted, shared } from "../../../core/time.ts";
import { oneConnection } from "../../kit/link.ts";
import { isWritten, seal, type BatchAnswer, type Batch, type Transactional } from "./batch.ts";
import { succeed } from "../codes.ts";
import type { AnswerOf, Connection } from "../driver.ts";
import { orStopped, persist, type Link } from "../link.ts";
import { produceRequest } from "./produce-request.ts";
import { grouped, spotKey } from "../reading/spots.ts";
import { createTransactions, identityOf, type Identity } from "../reading/transactions.ts";
import { written, type Address } from "../../kit/url.ts";

/**
 * One idempotent producer with connections of its own. It has one batch per partition under way, so a partition takes its batches in order,
 * each once. It does not recover: after one lost batch it is `spent`, and the caller needs another producer.
 */
export interface Producer {
  /** An answer for each batch. A partition has one batch at most. In a transaction, all are written or none. */
  send(batches: readonly Batch[], signal: AbortSignal): Promise<readonly BatchAnswer[]>;
  readonly spent: boolean;
  /** Of the producer that follows this one; null where the brokers have to give it one. */
  readonly heir: Identity | null;
  /** The brokers do not take its number or its epoch: it has no heir. */
  disown(): void;
  end(): void;
}

const sequences = 2 ** 31;
const lastEpoch = 2 ** 15 - 1;

export async function openProducer(
  link: Link,
  transactional: Transactional | null,
  opening: AbortSignal,
  inherited: Identity | null = null,
): Promise<Producer> {
  const ending = shared(new AbortController());
  const connections = new Map<string, (signal: AbortSignal) => Promise<Connection>>();
  const next = new Map<string, number>();
  const transactionalId = transactional === null ? null : transactional.name;
  let spent = false;
  let disowned = transactional !== null;

  const end = (): void => {
    spent = true;
    ending.abort();
  };
  const at = (address: Address): Promise<Connection> => {
    const name = written(address);
    const open = connections.get(name) ?? oneConnection(name, () => link.dial(address, ending.signal)).open;
    connections.set(name, open);
    return open(ending.signal);
  };
  const transactions = transactional === null ? null : createTransactions(link, transactional, at);

  const identify = async (): Promise<Identity> => {
    if (transactions !== null) return transactions.identify(opening);
    const { errorCode, producerId, producerEpoch } = await (await link.open(opening)).ask("initProducerId", [null, 0, -1n, -1]);
    succeed(errorCode, `${link.shown} gives no producer id`);
    return identityOf(link, producerId, producerEpoch);
  };
  let who: Identity;
  try {
    who = inherited ?? (await orStopped(link, persist(link, opening, identify), opening));
  } catch (error) {
    end();
    throw error;
  }

  /** Batches of one leader, in one request. */
  const produce = async (batches: readonly Batch[]): Promise<readonly BatchAnswer[]> => {
    let connection: Connection;
    try {
      connection = await at(batches[0]!.leader);
      connection.ended.throwIfAborted();
    } catch (error) {
      return batches.map(() => ({ unsent: asError(error) }));
    }
    for (const batch of batches)
      seal(batch, { ...who, sequence: next.get(spotKey(batch.topic, batch.partition)) ?? 0, isTransactional: transactionalId !== null });
    try {
      // The broker gives up before we do.
      const body = produceRequest(batches, { transactionalId, timeoutMs: Math.ceil(link.timeoutMs * 0.8) });
      const answers = answersIn(await connection.ask("produce", [body]));
      return batches.map((batch) => {
        const key = spotKey(batch.topic, batch.partition);
        const answer = answers.get(key) ?? { lost: new Error(`there was no answer for partition ${batch.partition} of ${batch.topic}`) };
        if (isWritten(answer)) next.set(key, ((next.get(key) ?? 0) + batch.count) % sequences);
        return answer;
      });
    } catch (error) {
      return batches.map(() => ({ lost: asError(error) }));
    }
  };

  const produceAll = async (batches: readonly Batch[]): Promise<readonly BatchAnswer[]> => {
    const answered = new Map<Batch, BatchAnswer>();
    await Promise.all(
      [...grouped(batches, ({ leader }) => written(leader)).values()].map(async (own) => {
        const answers = await produce(own);
        own.forEach((batch, i) => answered.set(batch, answers[i]!));
      }),
    );
    return batches.map((batch) => answered.get(batch)!);
  };

  return {
    get spent() {
      return spent;
    },
    /**
     * With the next epoch, a partition takes its first batch as number 0, and nothing more of this one. Numbers come from the controller: while
     * that one stands still, the other brokers have none to give for as long as they wait for its answer, which is 30 s.
     */
    get heir() {
      return disowned || who.epoch >= lastEpoch ? null : { id: who.id, epoch: who.epoch + 1 };
    },
    disown: () => void (disowned = true),
    end,
    async send(batches, signal) {
      const sent = transactions === null ? produceAll(batches) : transactions.run(who, batches, () => produceAll(batches), signal);
      const late = (): BatchAnswer => ({ lost: new Error(`${link.shown} did not answer before the publish was called off`) });
      const answers = await orAborted(sent, signal, () => batches.map(late));
      if (transactions?.over === true || answers.some((answer) => "lost" in answer)) spent = true;
      return answers;
    },
  };
}

function answersIn({ responses }: AnswerOf<"produce">): ReadonlyMap<string, BatchAnswer> {
  return new Map(
    responses.flatMap(({ name, partitionResponses }) =>
      partitionResponses.map(({ index, errorCode, errorMessage, recordErrors }): [string, BatchAnswer] => {
        return [spotKey(name, index), { code: errorCode, said: recordErrors[0]?.batchIndexErrorMessage ?? errorMessage }];
      }),
    ),
  );
}
