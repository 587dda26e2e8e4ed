/** A smaller payload counts for nothing. */
const large = 64 * 1024;
const mostBytes = 32 * 1024 * 1024;

/** How many bytes of large payloads one transaction may write again, and stand still for. */
interface Budget {
  /** Whether there is room for the row; there always is for the first. */
  take(payload: number): boolean;
}

/** SQLite writes the whole row again to change one column of it, and the process does nothing else meanwhile. */
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
