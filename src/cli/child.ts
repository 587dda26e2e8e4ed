/** What a parent tells a child that is to finish what it has in hand, and to end. */
export const drainOrder = "drain";

/** Without its parent nobody would ever end it; that holds when the parent was killed, too. */
export function endWithParent(): void {
  process.on("disconnect", () => process.exit(1));
  if (!process.connected) process.exit(1);
  // Ctrl-C and the end of a terminal reach every process of its group; when a child ends is its parent's decision.
  for (const name of ["SIGINT", "SIGHUP"] as const) process.on(name, () => undefined);
}

interface Running {
  drain(): Promise<void>;
  readonly stopped: Promise<void>;
}

/** Runs until it is told to drain. */
export async function serve<R extends Running>(
  play: () => Promise<R>,
  { ready, failed }: { ready(running: R): void; failed(error: unknown): void },
): Promise<void> {
  let running: R | null = null;
  let ending = false;
  const drain = async (): Promise<void> => {
    if (ending) return;
    ending = true;
    await running?.drain();
    process.exit(0);
  };
  process.on("SIGTERM", () => void drain().catch(failed));
  process.on("message", (message) => {
    if (message === drainOrder) void drain().catch(failed);
  });
  running = await play();
  ready(running);
  await running.stopped;
  if (!ending) failed(new Error("it ended by itself"));
}
