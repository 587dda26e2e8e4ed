/** How many deliveries of one receiving are out, and how many more may be. */
export interface Room {
  /** So many may be delivered now; 0 while the bytes that are out reach their bound. */
  readonly left: number;
  /** So many bytes may be delivered now, besides one delivery that goes beyond them while nothing is out. */
  readonly bytesLeft: number;
  /** May a delivery of so many bytes go out now? One is let through whatever its size. */
  fits(bytes: number): boolean;
  /** Counts one delivery of so many bytes. */
  take(bytes?: number): Taken;
}

export interface Taken {
  aside(): void;
  ack(): void;
}

export interface Bounds {
  readonly prefetch: number;
  readonly waiting?: number;
  readonly bytes?: number;
}

/** `prefetch` for those that are worked on, `waiting` more for those that are set aside, `bytes` for all of them; see Subscription. */
export function createRoom({ prefetch, waiting = 0, bytes: most = Infinity }: Bounds): Room {
  let out = 0;
  let asides = 0;
  let held = 0;
  const count = (): number => Math.min(prefetch - (out - asides), prefetch + waiting - out);
  return {
    get left() {
      return out > 0 && held >= most ? 0 : count();
    },
    get bytesLeft() {
      return Math.max(0, most - held);
    },
    fits: (bytes) => count() > 0 && (out === 0 || held + bytes <= most),
    take(bytes = 0) {
      let state: "in hand" | "aside" | "acked" = "in hand";
      out += 1;
      held += bytes;
      return {
        aside() {
          if (state !== "in hand") return;
          state = "aside";
          asides += 1;
        },
        ack() {
          if (state === "acked") return;
          if (state === "aside") asides -= 1;
          state = "acked";
          out -= 1;
          held -= bytes;
        },
      };
    },
  };
}
