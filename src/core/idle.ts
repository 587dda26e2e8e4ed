/** A socket, or a timer. */
interface Handle {
  ref(): unknown;
  unref(): unknown;
}

/**
 * An idle connection must not keep the process alive. A connection that owes an answer must, or the process would end in the middle of the
 * await. `handle` is internal to the client library: where a version of it has none, the process ends once the connection is closed.
 */
export function setIdle(handle: unknown, idle: boolean): void {
  if (!isHandle(handle)) return;
  if (idle) handle.unref();
  else handle.ref();
}

/** Counts the answers that are awaited from a connection. */
export interface Awaited {
  /** One more answer is awaited. Call the returned function when the answer has come, or will not come. Twice is harmless. */
  begin(): () => void;
}

/** The connection is idle now, and whenever nothing is awaited from it. */
export function createAwaited(handle: unknown): Awaited {
  let awaited = 0;
  setIdle(handle, true);
  return {
    begin() {
      if (awaited++ === 0) setIdle(handle, false);
      let over = false;
      return () => {
        if (over) return;
        over = true;
        if (--awaited === 0) setIdle(handle, true);
      };
    },
  };
}

function isHandle(handle: unknown): handle is Handle {
  const { ref, unref } = (handle ?? {}) as Partial<Handle>;
  return typeof ref === "function" && typeof unref === "function";
}
