import { randomFillSync } from "node:crypto";

/** Randomness is a port: a seed decides every jitter and every id in a simulation. */
export interface Random {
  /** Uniform in [0, 1). */
  next(): number;
  bytes(length: number): Uint8Array;
}

/** A call for a few bytes costs as much as one for thousands. No byte is given out twice. */
const pooledBytes = 4_096;
let pool = new Uint8Array(0);

export const systemRandom: Random = {
  next: () => Math.random(),
  bytes(length) {
    if (pool.length < length) pool = randomFillSync(new Uint8Array(Math.max(pooledBytes, length)));
    const taken = pool.slice(0, length);
    pool = pool.subarray(length);
    return taken;
  },
};

/** A seeded stream (mulberry32) for tests and simulations; never for secrets. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return { next, bytes: (length) => Uint8Array.from({ length }, () => Math.floor(next() * 256)) };
}
