import { asking, safely, type Observe } from "../core/path-events.ts";

/** Several observers as one. If one throws, the others still get the path event. It asks for ids and ages when one of them does. */
export function observers(...all: readonly Observe[]): Observe {
  const each = all.map(safely);
  const tell: Observe = (event) => {
    for (const observe of each) observe(event);
  };
  return asking(tell, each);
}
