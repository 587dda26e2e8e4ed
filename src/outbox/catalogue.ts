import { asError, show, WaybillError } from "../core/errors.ts";
import type { Draft } from "../core/event.ts";
import type { EventDefinition, EventMap } from "./event-map.ts";
import { checkOptions, suggestion, whole } from "../core/options.ts";
import { describeIssue, type InputOf, type StandardSchema, type SchemaResult } from "../core/standard-schema.ts";

export type { EventDefinition, EventMap, PayloadOf } from "./event-map.ts";

/** What `defineEvents` takes: for each event type a definition, or the bare schema. */
type EventDefinitions = Readonly<Record<string, StandardSchema | EventDefinition>>;

/** What `defineEvents` gives: a definition for each type. */
type Defined<Definitions extends EventDefinitions> = {
  readonly [Type in keyof Definitions]: Definitions[Type] extends StandardSchema
    ? { readonly schema: Definitions[Type] }
    : Definitions[Type] extends EventDefinition
      ? Definitions[Type]
      : never;
};

/** The drafts that a catalogue allows; any draft at all without one. */
export type DraftOf<Events extends EventMap> = string extends keyof Events
  ? Draft
  : { [Type in keyof Events & string]: DraftFor<Events[Type], Type> }[keyof Events & string];

type DraftFor<Definition extends EventDefinition, Type extends string> = Omit<
  Draft<Type, InputOf<Definition["schema"]>>,
  "aggregateType" | "eventVersion"
> &
  (Definition extends { readonly aggregateType: infer Name extends string }
    ? { readonly aggregateType?: Name }
    : { readonly aggregateType: string }) &
  (Definition extends { readonly version: infer Version extends number }
    ? { readonly eventVersion?: Version }
    : { readonly eventVersion?: number });

/** The events of a service, each with a schema by any library that speaks Standard Schema (zod, valibot, arktype, …). */
export function defineEvents<const Definitions extends EventDefinitions>(definitions: Definitions): Defined<Definitions> {
  if (typeof definitions !== "object" || definitions === null) {
    throw new WaybillError("INVALID_OPTION", `defineEvents takes an object of event types and their schemas, not ${show(definitions)}`);
  }
  // Without a prototype, so that a type named "constructor" is not found unless it was defined.
  const events = Object.create(null) as Record<string, EventDefinition>;
  for (const [type, given] of Object.entries(definitions)) {
    events[type] = Object.freeze(isSchema(given) ? { schema: given } : checked(type, given));
  }
  return Object.freeze(events) as Defined<Definitions>;
}

function checked(type: string, definition: EventDefinition): EventDefinition {
  const where = `event ${show(type)}`;
  if (typeof definition !== "object" || definition === null) throw needsSchema(where, definition);
  checkOptions(where, definition, ["schema", "version", "aggregateType"]);
  const { schema, version, aggregateType } = definition;
  if (!isSchema(schema)) throw needsSchema(where, schema);
  if (version !== undefined) whole(`version of ${where}`, version);
  if (aggregateType !== undefined && (typeof aggregateType !== "string" || aggregateType === "")) {
    throw new WaybillError("INVALID_OPTION", `aggregateType of ${where} must be a name, not ${show(aggregateType)}`);
  }
  return { ...definition };
}

function needsSchema(where: string, given: unknown): WaybillError {
  const libraries = "zod, valibot, arktype or any other that speaks Standard Schema";
  return new WaybillError("INVALID_OPTION", `${where} needs a schema (${libraries}), not ${show(given)}`);
}

/** An arktype schema is a function. */
function isSchema(value: unknown): value is StandardSchema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null || !("~standard" in value)) return false;
  return typeof (value as StandardSchema)["~standard"]?.validate === "function";
}

/**
 * Checks a draft against the catalogue and completes it. Throws at once, or returns a promise where the schema does.
 *
 * The stored payload is the schema's output, not the given value. It has the schema's defaults filled in, and lacks the fields that the
 * schema drops. That is what every reader was promised, in any language. The encoding refuses an output that is not JSON, such as a
 * transform to BigInt, like any other payload.
 */
export function fit(events: EventMap, draft: Draft): Draft | Promise<Draft> {
  const type: unknown = draft?.type;
  if (typeof type !== "string") return draft; // refused with all other malformed drafts
  const definition = events[type];
  if (definition === undefined) {
    throw new WaybillError(
      "UNKNOWN_EVENT_TYPE",
      `event type ${show(type)} is not in the catalogue${suggestion(type, Object.keys(events))}`,
    );
  }
  const complete = {
    ...draft,
    ...agreed("aggregateType", draft, definition.aggregateType),
    ...agreed("eventVersion", draft, definition.version),
  };
  const result = validated(draft, definition.schema);
  if (!isThenable(result)) return { ...complete, payload: output(draft, result) };
  return Promise.resolve(result).then(
    (late) => ({ ...complete, payload: output(draft, late) }),
    (cause: unknown) => {
      throw broken(draft, cause);
    },
  );
}

function agreed<Field extends "aggregateType" | "eventVersion">(
  field: Field,
  draft: Draft,
  defined: Draft[Field] | undefined,
): { [F in Field]?: Draft[F] } {
  if (defined === undefined) return {};
  if (draft[field] !== undefined && draft[field] !== defined) {
    throw new WaybillError("INVALID_DRAFT", `${field} of ${draft.type} is ${show(defined)} in the catalogue, not ${show(draft[field])}`);
  }
  return { [field]: defined } as { [F in Field]?: Draft[F] };
}

function validated(draft: Draft, schema: StandardSchema): SchemaResult<unknown> | PromiseLike<SchemaResult<unknown>> {
  try {
    return schema["~standard"].validate(draft.payload);
  } catch (cause) {
    throw broken(draft, cause);
  }
}

function output(draft: Draft, result: SchemaResult<unknown>): unknown {
  if (result.issues === undefined) return result.value;
  throw new WaybillError("INVALID_PAYLOAD", `the payload of ${draft.type} does not match its schema: ${describeIssue(result.issues)}`);
}

function broken(draft: Draft, cause: unknown): WaybillError {
  return new WaybillError("INVALID_PAYLOAD", `the schema of ${draft.type} failed on this payload: ${asError(cause).message}`, { cause });
}

export function isThenable<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return (
    (typeof value === "object" || typeof value === "function") && value !== null && typeof (value as PromiseLike<T>).then === "function"
  );
}
