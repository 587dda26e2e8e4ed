/** A binary heap of items by their time, the earliest first. Items of one time come in the order they were added. */
interface Agenda<Item> {
  add(at: number, item: Item): void;
  first(): AgendaEntry<Item> | null;
  /** Removes the first. */
  drop(): void;
}

export interface AgendaEntry<Item> {
  readonly at: number;
  readonly nth: number;
  readonly item: Item;
}

export function createAgenda<Item>(): Agenda<Item> {
  const heap: AgendaEntry<Item>[] = [];
  let added = 0;
  const before = (one: AgendaEntry<Item>, other: AgendaEntry<Item>): boolean =>
    one.at < other.at || (one.at === other.at && one.nth < other.nth);
  return {
    add(at, item) {
      const entry = { at, nth: added++, item };
      let place = heap.length;
      for (let parent = (place - 1) >> 1; place > 0 && before(entry, heap[parent]!); parent = (place - 1) >> 1) {
        heap[place] = heap[parent]!;
        place = parent;
      }
      heap[place] = entry;
    },
    first: () => heap[0] ?? null,
    drop() {
      const last = heap.pop();
      if (last === undefined || heap.length === 0) return;
      let place = 0;
      for (let child = 1; child < heap.length; child = 2 * place + 1) {
        if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child += 1;
        if (!before(heap[child]!, last)) break;
        heap[place] = heap[child]!;
        place = child;
      }
      heap[place] = last;
    },
  };
}
