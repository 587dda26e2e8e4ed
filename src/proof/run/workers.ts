import { join } from "node:path";
import { createCrew, type Crew, type CrewOptions } from "../crew/crew.ts";
import type { RelayTask, SubscriberTask, WriterTask } from "./task.ts";

type Without<T> = T extends unknown ? Omit<T, "name" | "history" | "log"> : never;
/** What a worker does in all its lives. */
export type WorkerDuty = Without<WriterTask> | Without<RelayTask> | Without<SubscriberTask>;
export type Workers = Crew<WorkerDuty>;

/** `folder`: where histories and logs go. */
interface WorkersOptions extends Pick<CrewOptions<WorkerDuty>, "program" | "clock" | "signal"> {
  readonly folder: string;
}

export function createWorkers({ folder, ...options }: WorkersOptions): Workers {
  const task = (name: string, duty: WorkerDuty): object => ({
    ...{ ...duty, name, history: join(folder, `${name}.jsonl`), log: join(folder, `${name}.log`) },
  });
  return createCrew<WorkerDuty>({ ...options, errors: folder, task });
}
