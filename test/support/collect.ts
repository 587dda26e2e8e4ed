import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
/** Collects garbage at once. An object that a WeakRef was asked for stays until the job that asked has ended. */
export const collect = runInNewContext("gc") as () => void;
