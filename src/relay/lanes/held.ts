/**
 * The lanes of one relay. A lane is
 *   held:    won by a take; the relay claims from it,
 *   leaving: to be given away, with events still under way; nothing more is claimed from it,
 *   gone:    given back in the table, or lost to another relay.
 * held → leaving → gone when it is given away; held or leaving → gone at once when another relay has taken it.
 */
export interface HeldLanes {
  /** Those that are held, with the epochs under which they were won. */
  readonly lanes: ReadonlyMap<number, bigint>;
  won(lanes: ReadonlyMap<number, bigint>, now: number): void;
  leave(lanes: readonly number[]): void;
  /** Those that are leaving and have nothing under way. */
  idle(inUse: ReadonlySet<number>): readonly number[];
  /** They are gone. Answers which of them were held or leaving until now. */
  gone(lanes: Iterable<number>): readonly number[];
  /**
   * Compares with what the table says is this relay's. `lost`: held, and now under another owner or epoch. `unknown`: in the table, and
   * neither held nor leaving, since the answer to a take was lost.
   */
  compared(mine: ReadonlyMap<number, bigint>): { readonly lost: readonly number[]; readonly unknown: readonly number[] };
  /** For how long each lane has been held. */
  ages(now: number): ReadonlyMap<number, number>;
  /** All of them are gone at once. */
  clear(): readonly number[];
}

export function createHeldLanes(): HeldLanes {
  const lanes = new Map<number, bigint>();
  const wonAt = new Map<number, number>();
  const leaving = new Set<number>();
  const gone = (which: Iterable<number>): readonly number[] =>
    [...which].filter((lane) => {
      const left = leaving.delete(lane);
      return lanes.delete(lane) || left;
    });

  return {
    lanes,
    gone,
    won(won, now) {
      for (const [lane, epoch] of won) {
        lanes.set(lane, epoch);
        wonAt.set(lane, now);
      }
    },
    leave(which) {
      for (const lane of which) if (lanes.delete(lane)) leaving.add(lane);
    },
    idle: (inUse) => [...leaving].filter((lane) => !inUse.has(lane)),
    compared(mine) {
      const lost = [...lanes.keys()].filter((lane) => mine.get(lane) !== lanes.get(lane));
      for (const lane of leaving) if (!mine.has(lane)) leaving.delete(lane);
      return { lost, unknown: [...mine.keys()].filter((lane) => (!lanes.has(lane) || lost.includes(lane)) && !leaving.has(lane)) };
    },
    ages: (now) => new Map([...lanes.keys()].map((lane) => [lane, now - wonAt.get(lane)!])),
    clear: () => gone([...lanes.keys(), ...leaving]),
  };
}
