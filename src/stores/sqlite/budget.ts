/** Payloads up to this size do not count. */
const large = 64 * 1024;
const mostBytes = 32 * 1024 * 1024;

/** Limits how many bytes of large payloads one transaction rewrites, which blocks the process. */
interface Budget {
  /** Whether there is room for the row. There always is for the first large one. */
  take(payload: number): boolean;
}

/** SQLite rewrites the whole row to change one column, and the process does nothing else meanwhile. */
export function createBudget(): Budget {
  let spent = 0;
  return {
    take(payload) {
      if (payload <= large) return true;
      if (spent > 0 && spent + payload > mostBytes) return false;
      spent += payload;
      return true;
    },
  };
}
