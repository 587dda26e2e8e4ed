import type { OutputOf, StandardSchema } from "../core/standard-schema.ts";

export interface EventDefinition {
  readonly schema: StandardSchema;
  /** Stored as `eventVersion`; a draft cannot give another. */
  readonly version?: number;
  /** If given, drafts may leave it out, and cannot name another. */
  readonly aggregateType?: string;
}

/** Event types with their definitions. `defineEvents` returns it, and outbox and subscriber are typed by it. */
export type EventMap = Readonly<Record<string, EventDefinition>>;

/** The payload of a type as a subscriber reads it: the JSON form of the schema's output, or the bytes as they are. */
export type PayloadOf<Events extends EventMap, Type extends keyof Events> =
  OutputOf<Events[Type]["schema"]> extends infer Output ? (Output extends Uint8Array ? Uint8Array : Json<Output>) : never;

/** A value after JSON: a Date is text, a function is gone, and a BigInt was refused before. */
type Json<T> = 0 extends 1 & T
  ? T
  : T extends string | number | boolean | null | undefined
    ? T
    : T extends { toJSON(): infer J }
      ? Json<J>
      : T extends bigint
        ? never
        : T extends symbol | ((...args: never) => unknown)
          ? undefined
          : T extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>
            ? Readonly<Record<string, never>>
            : T extends readonly unknown[]
              ? { [Item in keyof T]: Json<T[Item]> extends infer J ? (J extends undefined ? null : J) : never }
              : T extends object
                ? { [Key in keyof T as Key extends symbol ? never : Key]: Json<T[Key]> }
                : T;
