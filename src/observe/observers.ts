import { safely, withIds, type Observe } from "../core/path-events.ts";

/** Several observers as one. One that fails keeps no path event from the others. It asks for ids when one of them does. */
export function observers(...all: readonly Observe[]): Observe {
  const each = all.map(safely);
  const tell: Observe = (event) => {
    for (const observe of each) observe(event);
  };
  return each.some(({ ids }) => ids === true) ? withIds(tell) : tell;
}
