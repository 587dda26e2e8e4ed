/** A socket, or a timer. */
interface Handle {
  ref(): unknown;
  unref(): unknown;
}

/**
 * An idle connection must not keep the process alive. One that an answer is awaited from must, or the process would end in the middle of
 * the await. `handle` comes from inside a client: where a version of the client has none, the process ends once the connection is closed.
 */
export function setIdle(handle: unknown, idle: boolean): void {
  if (!isHandle(handle)) return;
  if (idle) handle.unref();
  else handle.ref();
}

/** Counts what is awaited from a connection. */
export interface Awaited {
  /** One more answer is awaited. What this returns says that the answer has come, or will not; twice is harmless. */
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
