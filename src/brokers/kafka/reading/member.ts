import { shared } from "../../../core/time.ts";
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
  protocol,
  share,
  type PartitionShare,
} from "./assignment.ts";
import { codeOf, codes, isPassing, KafkaRefusal, succeed, wrongAnswer } from "../codes.ts";
import type { Connection } from "../driver.ts";
import { oneConnection } from "../../kit/link.ts";
import { askAt, persist, type Link } from "../link.ts";
import { committedOffsets } from "./offsets.ts";
import { bySpot, byTopic, spotKey, type Spot } from "./spots.ts";

/** A member of a consumer's group. */
export interface GroupMember {
  /** Joins or rejoins, and waits for the other members to do so; resolves with the partitions that are ours now. */
  join(signal: AbortSignal): Promise<PartitionShare>;
  /** Of the last join. */
  readonly generation: number;
  /** The coordinator's code: see codes.ts. */
  heartbeat(): Promise<number>;
  /** The next offset of each spot, where there is one; in the order of the spots. */
  committed(spots: readonly Spot[], signal: AbortSignal): Promise<readonly (bigint | null)[]>;
  /** A code for each. */
  commit(spots: readonly (Spot & { readonly next: bigint })[]): Promise<readonly number[]>;
  /** Our partitions go to other members at once. */
  leave(): Promise<void>;
  end(): void;
}

interface MemberOptions {
  readonly link: Link;
  readonly group: string;
  readonly topics: readonly string[];
  readonly sessionMs: number;
  /** How long the other members wait for us in a rebalance. */
  readonly rebalanceMs: number;
}

const kind = "consumer";
/** The coordinator has forgotten the member, or its generation is over: it joins as a new member. */
const anew: readonly number[] = [codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION];

export function createMember({ link, group, topics, sessionMs, rebalanceMs }: MemberOptions): GroupMember {
  const ending = shared(new AbortController());
  let id = "";
  let generation = -1;
  const patience = { extraMs: rebalanceMs + sessionMs };

  const where = `${link.shown}, group ${group}`;
  const { open } = oneConnection(where, async () => link.dial(await link.coordinator("group", group, ending.signal), ending.signal));
  /** The coordinator may move to another broker. The old one then says so, and the coordinator is looked up again. */
  const ask = async <T>(work: (coordinator: Connection) => Promise<T>): Promise<T> => {
    const coordinator = await open(ending.signal);
    try {
      return await work(coordinator);
    } catch (error) {
      if (isPassing(codeOf(error) ?? -1)) coordinator.end(error as Error);
      throw error;
    }
  };

  const read = <T>(request: string, decode: () => T): T => {
    try {
      return decode();
    } catch (error) {
      throw wrongAnswer(where, request, error);
    }
  };

  const enter = async (): Promise<{ readonly leader: boolean; readonly members: readonly { id: string; topics: readonly string[] }[] }> => {
    const answer = await ask(async (open) => {
      const protocols = [{ name: protocol, metadata: encodeSubscription(topics) }];
      const joined = await open.ask("joinGroup", [group, sessionMs, rebalanceMs, id, null, kind, protocols], patience);
      if (joined.errorCode === codes.MEMBER_ID_REQUIRED) id = joined.memberId ?? "";
      if (anew.includes(joined.errorCode)) id = "";
      succeed(joined.errorCode, where);
      return joined;
    });
    id = answer.memberId ?? id;
    generation = answer.generationId;
    const members = answer.members.map(({ memberId, metadata }) => ({
      id: memberId,
      topics: read("joinGroup", () => decodeSubscription(metadata)),
    }));
    return { leader: answer.leader === id, members };
  };

  const sync = async (shares: ReadonlyMap<string, PartitionShare>): Promise<PartitionShare> => {
    const assignments = [...shares].map(([memberId, own]) => ({ memberId, assignment: encodeAssignment(own) }));
    const synced = await ask(async (open) => {
      const answer = await open.ask("syncGroup", [group, generation, id, null, kind, protocol, assignments], patience);
      if (anew.includes(answer.errorCode)) id = "";
      succeed(answer.errorCode, where);
      return answer;
    });
    const given = read("syncGroup", () => decodeAssignment(synced.assignment));
    // The leader's own share is known: with another one, or none, a partition would be read by nobody.
    const own = shares.get(id);
    if (own !== undefined && !encodeAssignment(own).equals(encodeAssignment(given))) throw wrongAnswer(where, "syncGroup");
    return given;
  };

  const join = async (signal: AbortSignal): Promise<PartitionShare> => {
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
    committed: (spots, signal) => persist(link, signal, () => ask((open) => committedOffsets(link, open, group, spots))),
    commit(spots) {
      // Read now: under a later generation, the coordinator would take offsets of partitions that are another member's by then.
      const [round, who] = [generation, id];
      return ask(async (open) => {
        const request = byTopic(spots, ({ index, next }) => ({
          ...{ partitionIndex: index, committedOffset: next, committedLeaderEpoch: -1, committedMetadata: null },
        }));
        const found = bySpot((await open.ask("offsetCommit", [group, round, who, null, request])).topics);
        return spots.map(({ topic, index }) => found.get(spotKey(topic, index))?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE);
      });
    },
    async leave() {
      if (id === "") return;
      // On another connection: the broker would not read this request behind a join that it has not answered yet.
      const home = await link.coordinator("group", group, ending.signal);
      await askAt(link, home, ending.signal, (open) => open.ask("leaveGroup", [group, [{ memberId: id }]]));
    },
    end: () => ending.abort(),
  };
}
