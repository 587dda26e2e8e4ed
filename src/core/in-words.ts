/** The units that a time may be written in, and how many milliseconds each is. */
export const timeUnits: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

/** In the largest unit that fits, with one digit after the point: 1500 is "1.5s", 90000 is "1.5m". */
export function inWords(ms: number): string {
  const [unit, size] = Object.entries(timeUnits)
    .filter(([name]) => name !== "w")
    .reverse()
    .find(([, each]) => ms >= each) ?? ["ms", 1];
  return `${Number((ms / size).toFixed(1))}${unit}`;
}
