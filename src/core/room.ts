/** How many deliveries of one receiver are unacknowledged, and how many more may be. */
export interface Room {
  /** How many may be delivered now; 0 while the unacknowledged bytes reach a bound. */
  readonly left: number;
  /** How many bytes may be delivered now. While nothing is worked on, one delivery may exceed them. */
  readonly bytesLeft: number;
  /** May a delivery of this size go out now? While nothing is worked on, one is let through whatever its size. */
  fits(bytes: number): boolean;
  /** Counts one delivery of this size. */
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

/** `prefetch` deliveries may be worked on, `waiting` more may be set aside, and each of the two may have `bytes`; see Subscription. */
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

/** Counts the bytes set aside. One message counts as half the bound at most, so alone it never keeps others out, whatever its size. */
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
