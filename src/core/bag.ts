/**
 * Things under way, in no order. Not a Set: a Set replaces its table after every few additions, and the old table refers to the new one.
 * Once a full garbage collection has made one table old, V8 keeps all later tables and their contents until the next full collection. For
 * things that come and go with each event, copying those cost a third of our own code's time.
 */
export interface Bag<T extends Placed> {
  put(thing: T): void;
  /** False when the thing is not in the bag. */
  remove(thing: T): boolean;
  /** The things that are in the bag now. */
  things(): readonly T[];
}

/** Where a thing lies in its bag. */
interface Placed {
  place: number;
}

export function createBag<T extends Placed>(): Bag<T> {
  const all: T[] = [];
  return {
    put(thing) {
      thing.place = all.push(thing) - 1;
    },
    remove(thing) {
      if (all[thing.place] !== thing) return false;
      const last = all.pop()!;
      if (last === thing) return true;
      all[thing.place] = last;
      last.place = thing.place;
      return true;
    },
    things: () => [...all],
  };
}
