/** The windows of each relay in this process. A claim can then name the windows to forget, and need not search all windows. */
interface Known {
  /** Called when a claim begins. "all": the store does not know which windows the relay has. */
  stale(relay: string, open: readonly string[]): readonly string[] | "all";
  doubt(relay: string): void;
  keep(relay: string, open: readonly string[], made: string | null): void;
  drop(relay: string, window: string): void;
}

export function createKnown(): Known {
  const windows = new Map<string, Set<string>>();
  /** Windows that ended since the last claim began. Its request still listed them as open. */
  const ended = new Map<string, Set<string>>();
  return {
    stale(relay, open) {
      ended.set(relay, new Set());
      const mine = windows.get(relay);
      return mine === undefined ? "all" : [...mine].filter((window) => !open.includes(window));
    },
    doubt: (relay) => void windows.delete(relay),
    drop(relay, window) {
      windows.get(relay)?.delete(window);
      ended.get(relay)?.add(window);
    },
    keep(relay, open, made) {
      const left = open.filter((window) => !ended.get(relay)?.has(window));
      windows.set(relay, new Set(made === null ? left : [...left, made]));
    },
  };
}
