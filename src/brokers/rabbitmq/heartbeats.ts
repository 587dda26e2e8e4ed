interface Beating {
  startHeartbeater: (this: Beating) => unknown;
  readonly stream: { readonly destroyed?: boolean };
}

const mended = new WeakSet<object>();

/**
 * A connect that was called off may still be opened, by bytes that the client had read before its socket ended. Nothing listens to such a
 * connection: the error of its heartbeats would end the process. So no connection whose socket is gone begins any.
 */
export function mendHeartbeats(connection: object): void {
  const all = Object.getPrototypeOf(connection) as Beating;
  if (mended.has(all) || typeof all.startHeartbeater !== "function") return;
  mended.add(all);
  const { startHeartbeater: start } = all;
  all.startHeartbeater = function (this: Beating) {
    return this.stream.destroyed === true ? null : start.call(this);
  };
}
