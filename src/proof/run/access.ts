import type { BrokerAdapter, Named, Pace, RunBroker, StoreAdapter } from "../../contracts/adapter.ts";
import type { RunPlace } from "../../proof/run/task.ts";

/** How a run finds the adapters of its URLs; only the command line knows their table. */
export interface Access {
  store(url: string): Named<StoreAdapter>;
  broker(url: string): Named<BrokerAdapter>;
}

/** For workers: they notice a fault soon, and recover from it soon. */
const hasty: Pace = { timeoutMs: 2_000, sessionMs: 6_000 };
/** For the code that creates and reads topics: a slow broker, or a judge that has to wait for its turn, must not decide the verdict. */
export const patient: Pace = { timeoutMs: 10_000, sessionMs: 20_000 };

export function openRunBroker(
  access: Access,
  { broker: text, run }: Pick<RunPlace, "broker" | "run">,
  pace = hasty,
): RunBroker & AsyncDisposable {
  const url = access.broker(text);
  const opened = url.adapter.openRun(url, run, pace);
  return { ...opened, [Symbol.asyncDispose]: () => opened.broker[Symbol.asyncDispose]() };
}
