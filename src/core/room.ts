/** How many deliveries of one receiving are out, and how many more may be. */
export interface Room {
  /** So many may be delivered now; 0 while the bytes that are out reach a bound. */
  readonly left: number;
  /** So many bytes may be delivered now, besides one delivery that goes beyond them while nothing is worked on. */
  readonly bytesLeft: number;
  /** May a delivery of so many bytes go out now? While nothing is worked on, one is let through whatever its size. */
  fits(bytes: number): boolean;
  /** Counts one delivery of so many bytes. */
  take(bytes?: number): Taken;
}

interface Taken {
  aside(): void;
  ack(): void;
}

interface Bounds {
  readonly prefetch: number;
  readonly waiting?: number;
  readonly bytes?: number;
}

/** `prefetch` for those that are worked on, `waiting` more for those that are set aside, `bytes` for each of the two; see Subscription. */
export function createRoom({ prefetch, waiting = 0, bytes: most = Infinity }: Bounds): Room {
  let out = 0;
  let asides = 0;
  let held = 0;
  const asideBytes = createAsideBytes(most);
  const count = (): number => Math.min(prefetch - (out - asides), prefetch + waiting - out);
  const bytesLeft = (): number => (asideBytes.full ? 0 : Math.max(0, most - held));
  return {
    get left() {
      return bytesLeft() === 0 ? 0 : count();
    },
    get bytesLeft() {
      return bytesLeft();
    },
    fits: (bytes) => count() > 0 && bytesLeft() > 0 && (out === asides || bytes <= bytesLeft()),
    take(bytes = 0) {
      let state: "in hand" | "aside" | "acked" = "in hand";
      out += 1;
      held += bytes;
      const putDown = (now: "aside" | "acked"): void => {
        if (state === "in hand") held -= bytes;
        else {
          asides -= 1;
          asideBytes.remove(bytes);
        }
        state = now;
      };
      return {
        aside() {
          if (state !== "in hand") return;
          putDown("aside");
          asides += 1;
          asideBytes.add(bytes);
        },
        ack() {
          if (state === "acked") return;
          putDown("acked");
          out -= 1;
        },
      };
    },
  };
}

interface AsideBytes {
  add(bytes: number): void;
  remove(bytes: number): void;
  readonly full: boolean;
}

/** The bytes of what is set aside. One message counts as half the bound at most: alone it never keeps others out, whatever its size. */
export function createAsideBytes(most: number): AsideBytes {
  let sum = 0;
  const counted = (bytes: number): number => Math.min(bytes, most / 2);
  return {
    add: (bytes) => void (sum += counted(bytes)),
    remove: (bytes) => void (sum -= counted(bytes)),
    get full() {
      return sum >= most;
    },
  };
}
