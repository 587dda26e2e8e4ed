/** Runs batch after batch until one says that there is no more, or the signal aborts; with a pause between two. */
export async function inBatches(
  { pause, signal }: { pause?(): Promise<void>; readonly signal?: AbortSignal },
  batch: () => Promise<boolean>,
): Promise<void> {
  while (signal?.aborted !== true && (await batch())) await pause?.();
}
