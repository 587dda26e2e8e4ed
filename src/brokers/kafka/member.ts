import { WaybillError } from "../../core/errors.ts";
import { shared } from "../../core/signal.ts";
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
  protocol,
  share,
  type Assignment,
} from "./assignment.ts";
import { codeOf, codes, isPassing, KafkaRefusal, succeed } from "./codes.ts";
import type { Connection } from "./driver.ts";
import { grouped } from "./grouped.ts";
import { persist, type Link } from "./link.ts";

export interface Spot {
  readonly topic: string;
  readonly index: number;
}

/** A member of a consumer's group. */
export interface Member {
  /** Joins, or joins again, and waits for the others to do so; resolves with what is ours now. */
  join(signal: AbortSignal): Promise<Assignment>;
  /** Of the last join. */
  readonly generation: number;
  /** The coordinator's code: see codes.ts. */
  heartbeat(): Promise<number>;
  /** The next offset of each spot, where there is one; in the order of the spots. */
  committed(spots: readonly Spot[], signal: AbortSignal): Promise<readonly (bigint | null)[]>;
  /** A code for each. */
  commit(spots: readonly (Spot & { readonly next: bigint })[]): Promise<readonly number[]>;
  /** What we had is another's at once. */
  leave(): Promise<void>;
  end(): void;
}

export interface MemberOptions {
  readonly link: Link;
  readonly group: string;
  readonly topics: readonly string[];
  readonly sessionMs: number;
  /** How long the others wait for us when all join again. */
  readonly rebalanceMs: number;
}

const kind = "consumer";
/** A member that the group has forgotten, or whose round is over, begins anew. */
const anew: readonly number[] = [codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION];

export function createMember({ link, group, topics, sessionMs, rebalanceMs }: MemberOptions): Member {
  const ending = shared(new AbortController());
  let connection: Promise<Connection> | null = null;
  let id = "";
  let generation = -1;

  const coordinator = (): Promise<Connection> => {
    if (connection === null) {
      const dialled = link.coordinator("group", group, ending.signal).then((address) => link.dial(address, ending.signal));
      connection = dialled;
      const forget = (): void => {
        if (connection === dialled) connection = null;
      };
      dialled.then(({ ended }) => (ended.aborted ? forget() : ended.addEventListener("abort", forget)), forget);
    }
    return connection;
  };
  const drop = async (why: Error): Promise<void> => {
    const dropped = connection;
    connection = null;
    await dropped?.then(
      (open) => open.end(why),
      () => undefined,
    );
  };
  const where = `${link.shown}, group ${group}`;
  /** The coordinator may be another broker tomorrow: then it says so, and is looked for again. */
  const ask = async <T>(work: (coordinator: Connection) => Promise<T>): Promise<T> => {
    try {
      return await work(await coordinator());
    } catch (error) {
      if (isPassing(codeOf(error) ?? -1)) await drop(error as Error);
      throw error;
    }
  };

  const enter = async (): Promise<{ readonly leader: boolean; readonly members: readonly { id: string; topics: readonly string[] }[] }> => {
    const answer = await ask(async (open) => {
      const protocols = [{ name: protocol, metadata: encodeSubscription(topics) }];
      const joined = await open.ask("joinGroup", [group, sessionMs, rebalanceMs, id, null, kind, protocols], rebalanceMs + sessionMs);
      if (joined.errorCode === codes.MEMBER_ID_REQUIRED) id = joined.memberId ?? "";
      if (anew.includes(joined.errorCode)) id = "";
      succeed(joined.errorCode, where);
      return joined;
    });
    id = answer.memberId ?? id;
    generation = answer.generationId;
    const members = answer.members.map((member) => ({ id: member.memberId, topics: decodeSubscription(member.metadata) }));
    return { leader: answer.leader === id, members };
  };

  const sync = async (shares: ReadonlyMap<string, Assignment>): Promise<Assignment> => {
    const assignments = [...shares].map(([memberId, own]) => ({ memberId, assignment: encodeAssignment(own) }));
    const synced = await ask(async (open) => {
      const answer = await open.ask("syncGroup", [group, generation, id, null, kind, protocol, assignments], rebalanceMs + sessionMs);
      if (anew.includes(answer.errorCode)) id = "";
      succeed(answer.errorCode, where);
      return answer;
    });
    return decodeAssignment(synced.assignment);
  };

  const join = async (signal: AbortSignal): Promise<Assignment> => {
    const { leader, members } = await enter();
    if (!leader) return sync(new Map());
    const wanted = [...new Set(members.flatMap((member) => member.topics))];
    const { topics: found } = await link.look(wanted, signal);
    const there = [...found].flatMap(([name, topic]) => (topic instanceof Error ? [] : [[name, topic.partitions.length] as const]));
    return sync(share(members, new Map(there)));
  };

  return {
    get generation() {
      return generation;
    },
    join: (signal) =>
      persist(link, signal, async () => {
        for (;;) {
          signal.throwIfAborted();
          try {
            return await join(signal);
          } catch (error) {
            const code = codeOf(error);
            if (code === null || ![codes.MEMBER_ID_REQUIRED, codes.REBALANCE_IN_PROGRESS, ...anew].includes(code)) throw error;
          }
        }
      }),
    heartbeat: () =>
      ask(async (open) => {
        const { errorCode } = await open.ask("heartbeat", [group, generation, id, null]);
        if (isPassing(errorCode)) throw new KafkaRefusal(errorCode, where);
        return errorCode;
      }),
    committed: (spots, signal) =>
      persist(link, signal, () =>
        ask(async (open) => {
          const asked = [...grouped(spots, ({ topic }) => topic)].map(([name, own]) => ({
            name,
            partitionIndexes: own.map(({ index }) => index),
          }));
          // Stable: what a transaction has still to decide is waited for.
          const { groups } = await open.ask("offsetFetch", [[{ groupId: group, memberEpoch: -1, topics: asked }], true]);
          const [answer] = groups;
          succeed(answer?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE, where);
          const found = new Map<string, bigint>();
          for (const { name, partitions } of answer!.topics) {
            for (const { partitionIndex, committedOffset, errorCode } of partitions) {
              succeed(errorCode, where);
              if (committedOffset >= 0n) found.set(`${name}:${partitionIndex}`, committedOffset);
            }
          }
          return spots.map(({ topic, index }) => found.get(`${topic}:${index}`) ?? null);
        }),
      ),
    commit(spots) {
      // As they are now: in the name of a later round the coordinator would take what is another's by then.
      const [round, who] = [generation, id];
      return ask(async (open) => {
        const request = [...grouped(spots, ({ topic }) => topic)].map(([name, own]) => ({
          name,
          partitions: own.map(({ index, next }) => ({
            ...{ partitionIndex: index, committedOffset: next, committedLeaderEpoch: -1, committedMetadata: null },
          })),
        }));
        const answer = await open.ask("offsetCommit", [group, round, who, null, request]);
        const found = new Map(
          answer.topics.flatMap(({ name, partitions }) =>
            partitions.map((one) => [`${name}:${one.partitionIndex}`, one.errorCode] as const),
          ),
        );
        return spots.map(({ topic, index }) => found.get(`${topic}:${index}`) ?? codes.COORDINATOR_NOT_AVAILABLE);
      });
    },
    async leave() {
      if (id === "") return;
      // A new connection: behind a join that is not answered yet, the broker would not read it.
      await drop(new WaybillError("STOPPED", `the receiving of ${group} has ended`));
      await ask((open) => open.ask("leaveGroup", [group, [{ memberId: id }]]));
    },
    end: () => ending.abort(),
  };
}
