import { asError } from "../../../core/errors.ts";
import { isWritten, type BatchAnswer, type Batch, type Transactional } from "../writing/batch.ts";
import { codeOf, isPassing, succeed, wrongAnswer } from "../codes.ts";
import type { Connection } from "../driver.ts";
import { persist, type Link } from "../link.ts";
import { byTopic } from "./spots.ts";
import type { Address } from "../../kit/url.ts";

export interface Identity {
  readonly id: bigint;
  readonly epoch: number;
}

export function identityOf({ shown }: Link, id: bigint, epoch: number): Identity {
  if (id < 0n || epoch < 0) throw wrongAnswer(shown, "initProducerId");
  return { id, epoch };
}

interface Transactions {
  /** Also ends a transaction that an earlier producer of this name left open. */
  identify(signal: AbortSignal): Promise<Identity>;
  /** Runs `produce` in a transaction of its own, which is committed if every batch was written, and aborted otherwise. */
  run(
    who: Identity,
    batches: readonly Batch[],
    produce: () => Promise<readonly BatchAnswer[]>,
    signal: AbortSignal,
  ): Promise<readonly BatchAnswer[]>;
  /** The last transaction did not begin or end as it should: another producer of this name must come first. */
  readonly over: boolean;
}

export function createTransactions(
  link: Link,
  { name, timeoutMs }: Transactional,
  at: (address: Address) => Promise<Connection>,
): Transactions {
  let home: Address | null = null;
  let over = false;

  /** Asks the coordinator, wherever it is, until it answers. */
  const ask = <T>(signal: AbortSignal, work: (coordinator: Connection) => Promise<T>): Promise<T> =>
    persist(link, signal, async () => {
      try {
        return await work(await at((home ??= await link.coordinator("transaction", name, signal))));
      } catch (error) {
        if (isPassing(codeOf(error) ?? -1)) home = null;
        throw error;
      }
    });

  /** Adds the partitions first: the broker takes no batch for a partition that is not part of the transaction. */
  const begin = ({ id, epoch }: Identity, batches: readonly Batch[], signal: AbortSignal): Promise<void> =>
    ask(signal, async (coordinator) => {
      const topics = byTopic(batches, ({ partition }) => partition);
      const request = [{ transactionalId: name, producerId: id, producerEpoch: epoch, verifyOnly: false, topics }];
      const { resultsByTransaction } = await coordinator.ask("addPartitionsToTxn", [request]);
      const results = resultsByTransaction.flatMap(({ topicResults }) => topicResults.flatMap((topic) => topic.resultsByPartition));
      for (const { partitionErrorCode } of results) succeed(partitionErrorCode, `${link.shown} begins no transaction`);
    });

  const end = ({ id, epoch }: Identity, commit: boolean, signal: AbortSignal): Promise<void> =>
    ask(signal, async (coordinator) => {
      succeed((await coordinator.ask("endTxn", [name, id, epoch, commit])).errorCode, `${link.shown} ends no transaction`);
    });

  return {
    get over() {
      return over;
    },
    identify: (signal) =>
      ask(signal, async (coordinator) => {
        const { errorCode, producerId, producerEpoch } = await coordinator.ask("initProducerId", [name, timeoutMs, -1n, -1]);
        succeed(errorCode, `${link.shown} gives no producer id for the transactions of ${name}`);
        return identityOf(link, producerId, producerEpoch);
      }),
    async run(who, batches, produce, signal) {
      try {
        await begin(who, batches, signal);
      } catch (error) {
        over = true;
        const code = codeOf(error);
        return batches.map(() => (code === null ? { unsent: asError(error) } : { code, said: asError(error).message }));
      }
      const answers = await produce();
      const commit = answers.every(isWritten);
      try {
        await end(who, commit, signal);
        return commit ? answers : answers.map((answer) => (isWritten(answer) ? { undone: true } : answer));
      } catch (error) {
        over = true;
        // Only a commit may have happened without an answer. Batches that were not to be committed never will be.
        return answers.map((answer) => (commit ? { lost: asError(error) } : isWritten(answer) ? { unsent: asError(error) } : answer));
      }
    },
  };
}
