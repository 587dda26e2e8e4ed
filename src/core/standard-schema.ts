/** The part of the Standard Schema contract that is used here; zod, valibot and arktype all satisfy it. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type SchemaResult<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export type InputOf<S> = S extends { readonly "~standard": { readonly types?: infer T } }
  ? NonNullable<T> extends { readonly input: infer I }
    ? I
    : unknown
  : unknown;
export type OutputOf<S> = S extends { readonly "~standard": { readonly types?: infer T } }
  ? NonNullable<T> extends { readonly output: infer O }
    ? O
    : unknown
  : unknown;

/** The first issue in words: where, and what. */
export function describeIssue(issues: readonly SchemaIssue[]): string {
  const [first] = issues;
  if (first === undefined) return "the schema refused it without a reason";
  const path = (first.path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return path === "" ? first.message : `${path}: ${first.message}`;
}
