import { inWords, timeUnits } from "../core/in-words.ts";
import type { Read } from "./read.ts";

const form = /^(\d{1,12}(?:\.\d{1,3})?)(ms|s|m|h|d|w)$/;

/** "100ms", "10s", "5m", "2h", "7d", "1w" in milliseconds. A bare number is refused, because its unit is not visible. */
export function duration(leastMs: number, mostMs: number): Read<number> {
  return (text, refuse) => {
    const [, amount, unit] = form.exec(text) ?? [];
    if (amount === undefined || unit === undefined) {
      return refuse(`must be a time such as 100ms, 10s, 5m, 2h or 7d, not ${JSON.stringify(text)}`);
    }
    const ms = Math.round(Number(amount) * timeUnits[unit]!);
    if (ms < leastMs || ms > mostMs) return refuse(`must be from ${inWords(leastMs)} to ${inWords(mostMs)}, not ${text}`);
    return ms;
  };
}
