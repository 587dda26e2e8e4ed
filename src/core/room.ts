/** How many deliveries of one receiving are out, and how many more may be. */
export interface Room {
  /** So many may be delivered now. */
  readonly left: number;
  /** Counts one delivery. */
  take(): Taken;
}

export interface Taken {
  aside(): void;
  ack(): void;
}

/** `prefetch` for those that are worked on, `waiting` more for those that are set aside; see Subscription. */
export function createRoom({ prefetch, waiting = 0 }: { readonly prefetch: number; readonly waiting?: number }): Room {
  let out = 0;
  let asides = 0;
  return {
    get left() {
      return Math.min(prefetch - (out - asides), prefetch + waiting - out);
    },
    take() {
      let state: "in hand" | "aside" | "acked" = "in hand";
      out += 1;
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
        },
      };
    },
  };
}
