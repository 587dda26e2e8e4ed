import type { DeadFilter, EventFilter } from "../../contracts/operator.ts";
import { WaybillError } from "../../core/errors.ts";

/** Named ids must exist and be dead: silence would look like success. */
export function refuseOthers(ids: readonly string[], statusOf: (id: string) => string | undefined): void {
  for (const id of ids) {
    const status = statusOf(id);
    if (status === undefined) throw new WaybillError("NOT_FOUND", `there is no event ${JSON.stringify(id)}`);
    if (status !== "DEAD") throw new WaybillError("WRONG_STATE", `event ${id} is ${status}, not DEAD`);
  }
}

/** The column values of events that match, except for ids, `error` and `beforeSeq`. */
export function testsOf(filter: Partial<EventFilter> & DeadFilter): readonly (readonly [column: string, value: string])[] {
  const tests = [
    ["state", filter.state],
    ["aggregate_type", filter.aggregateType],
    ["aggregate_id", filter.aggregateId],
    ["event_type", filter.type],
  ] as const;
  return tests.flatMap(([column, value]) => (value === undefined ? [] : [[column, value]]));
}

/** What the audit records of an action, with no more ids than a person reads. */
export const auditedOf = (filter: object, ids: readonly string[]): object => ({ ...filter, ids: ids.slice(0, 100) });
