import { asError, WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";
import { isWritten, type Answer, type Batch, type Transactional } from "./batch.ts";
import { succeed } from "./codes.ts";
import type { Connection } from "./driver.ts";
import { grouped } from "./grouped.ts";
import { persist, type Link } from "./link.ts";
import { createTransactions, type Identity } from "./transactions.ts";
import { written, type Address } from "../kit/url.ts";
import type { ProduceAnswer } from "./wire.ts";

/**
 * One idempotent producer with connections of its own. It has one batch per partition under way, so that a partition takes what it sends in
 * order, each batch once. It is not mended: when one batch is lost it is `spent`, and whoever needs one makes another.
 */
export interface Producer {
  /** An answer for each batch, of which there is one for a partition. In a transaction all are written or none. */
  send(batches: readonly Batch[], signal: AbortSignal): Promise<readonly Answer[]>;
  readonly spent: boolean;
  end(): void;
}

const keyOf = (topic: string, partition: number): string => `${topic}:${partition}`;
const sequences = 2 ** 31;

export async function openProducer(link: Link, transactional: Transactional | null, opening: AbortSignal): Promise<Producer> {
  const ending = new AbortController();
  const connections = new Map<string, Promise<Connection>>();
  const next = new Map<string, number>();
  let spent = false;

  const end = (): void => {
    spent = true;
    ending.abort();
  };
  /** A connection is opened when it is first needed, and forgotten when it has ended. */
  const at = (address: Address): Promise<Connection> => {
    const name = written(address);
    let connection = connections.get(name);
    if (connection === undefined) {
      connections.set(name, (connection = link.dial(address, ending.signal)));
      const forget = (): void => void connections.delete(name);
      connection.then(({ ended }) => (ended.aborted ? forget() : ended.addEventListener("abort", forget)), forget);
    }
    return connection;
  };
  const transactions = transactional === null ? null : createTransactions(link, transactional, at);

  const identify = async (): Promise<Identity> => {
    if (transactions !== null) return transactions.identify(opening);
    const { errorCode, producerId, producerEpoch } = await (await link.open(opening)).ask("initProducerId", [null, 0, -1n, -1]);
    succeed(errorCode, `${link.shown} gives no producer id`);
    return { id: producerId, epoch: producerEpoch };
  };
  let who: Identity;
  try {
    who = await orAborted(persist(link, opening, identify), opening, () => {
      throw new WaybillError("STOPPED", `${link.shown} was not waited for any longer`);
    });
  } catch (error) {
    end();
    throw error;
  }
  const how = {
    ...{ producerId: who.id, producerEpoch: who.epoch, sequences: { getWithDefault: (key: string) => next.get(key) ?? 0 } },
    ...(transactional === null ? {} : { transactionalId: transactional.name }),
  };

  /** Batches of one leader, in one request. */
  const produce = async (batches: readonly Batch[]): Promise<readonly Answer[]> => {
    let connection: Connection;
    try {
      connection = await at(batches[0]!.leader);
      connection.ended.throwIfAborted();
    } catch (error) {
      return batches.map(() => ({ unsent: asError(error) }));
    }
    try {
      const messages = batches.flatMap((batch) => batch.messages);
      // -1: every replica that is in sync has it. The broker gives up before we do.
      const answers = answersIn(await connection.ask("produce", [-1, Math.ceil(link.timeoutMs * 0.8), messages, how]));
      return batches.map((batch) => {
        const key = keyOf(batch.topic, batch.partition);
        const answer = answers.get(key) ?? { lost: new Error(`there was no answer for partition ${batch.partition} of ${batch.topic}`) };
        if (isWritten(answer)) next.set(key, ((next.get(key) ?? 0) + batch.messages.length) % sequences);
        return answer;
      });
    } catch (error) {
      return batches.map(() => ({ lost: asError(error) }));
    }
  };

  const produceAll = async (batches: readonly Batch[]): Promise<readonly Answer[]> => {
    const answered = new Map<Batch, Answer>();
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
    end,
    async send(batches, signal) {
      const sent = transactions === null ? produceAll(batches) : transactions.run(who, batches, () => produceAll(batches), signal);
      const late = { lost: new Error(`${link.shown} did not answer before the publish was called off`) };
      const answers = await orAborted(sent, signal, () => batches.map(() => late));
      if (transactions?.over === true || answers.some((answer) => "lost" in answer)) spent = true;
      return answers;
    },
  };
}

function answersIn({ responses }: ProduceAnswer): ReadonlyMap<string, Answer> {
  return new Map(
    responses.flatMap(({ name, partitionResponses }) =>
      partitionResponses.map(({ index, errorCode, errorMessage, recordErrors }): [string, Answer] => {
        return [keyOf(name, index), { code: errorCode, said: recordErrors[0]?.batchIndexErrorMessage ?? errorMessage }];
      }),
    ),
  );
}
