import { asError, isWaybillError, type ErrorCode } from "../core/errors.ts";
import { redactText } from "../core/text.ts";

/** Exit code 2: the command must be written differently. Everything else that fails is 1. */
const wrongUse: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "USAGE",
  "BAD_URL",
  "INVALID_OPTION",
  "CONFIG_INVALID",
  "UNSUPPORTED",
  "INVALID_DRAFT",
  "INVALID_HEADER",
  "RESERVED_HEADER",
  "INVALID_PAYLOAD",
  "PAYLOAD_NOT_SERIALISABLE",
  "PAYLOAD_TOO_LARGE",
  "UNKNOWN_EVENT_TYPE",
]);

interface Failure {
  readonly exitCode: 1 | 2;
  /** For stderr. They contain no secret of a URL, and a stack only with `debug`. */
  readonly lines: readonly string[];
}

export function failure(cause: unknown, { json, debug }: { readonly json: boolean; readonly debug: boolean }): Failure {
  const error = asError(cause);
  const known = isWaybillError(cause) ? cause : null;
  const message = redactText(error.message);
  const remedy = known?.remedy ?? "This was not expected; WAYBILL_DEBUG=1 shows where it happened.";
  const stack = debug ? stackOf(error).map(redactText) : undefined;
  const code = known?.code ?? null;
  const lines = json
    ? [JSON.stringify({ error: { code, message, remedy, retryable: known?.retryable ?? false, stack: stack?.join("\n") } })]
    : [`waybill: ${message}`, `  ${remedy}${code === null ? "" : ` [${code}]`}`, ...(stack ?? [])];
  return { exitCode: known !== null && wrongUse.has(known.code) ? 2 : 1, lines };
}

/** A message may contain line breaks. It stays one element of the list. */
function stackOf(error: Error, before = ""): string[] {
  const frames = (error.stack ?? "").split("\n").filter((line) => /^ {4}at /.test(line));
  const own = [`${before}${error.name}: ${error.message}`, ...frames];
  return error.cause instanceof Error ? [...own, ...stackOf(error.cause, "caused by ")] : own;
}
