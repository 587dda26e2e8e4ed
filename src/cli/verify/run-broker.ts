import type { Pace, RunBroker } from "../../contracts/adapter.ts";
import { brokerUrl } from "../url.ts";
import type { Place } from "./task.ts";

/** Of workers: what is broken on purpose is felt soon, and gone soon. */
const hasty: Pace = { timeoutMs: 2_000, sessionMs: 6_000 };
/** Of whoever makes and reads topics: a broker that is slow, or a judge that has to wait for its turn, is no verdict. */
export const patient: Pace = { timeoutMs: 10_000, sessionMs: 20_000 };

export function openRunBroker({ broker: text, run }: Pick<Place, "broker" | "run">, pace = hasty): RunBroker & AsyncDisposable {
  const url = brokerUrl(text);
  const opened = url.adapter.openRun(url, run, pace);
  return { ...opened, [Symbol.asyncDispose]: () => opened.broker[Symbol.asyncDispose]() };
}
