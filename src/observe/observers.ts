import { asking, safely, type Observe } from "../core/path-events.ts";

/** Several observers as one. One that fails keeps no path event from the others. It asks for ids and ages when one of them does. */
export function observers(...all: readonly Observe[]): Observe {
  const each = all.map(safely);
  const tell: Observe = (event) => {
    for (const observe of each) observe(event);
  };
  return asking(tell, each);
}
