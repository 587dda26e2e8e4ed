const day = 86_400_000;
const nearMs = 60_000;

/** A test of today's partition is not begun when today is about to end. */
export async function awayFromMidnight(): Promise<void> {
  const leftMs = day - (Date.now() % day);
  if (leftMs < nearMs) await new Promise((resolve) => setTimeout(resolve, leftMs + 1_000));
}
