import { asError, isWaybillError, WaybillError, type ErrorCode } from "../core/errors.ts";
import { visible } from "./output.ts";
import { redactText } from "./redact.ts";

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

export interface Failure {
  readonly exitCode: 1 | 2;
  /** For stderr; no secret of a URL is in it, and no stack unless it was asked for. */
  readonly text: string;
}

export function failure(cause: unknown, { json, debug }: { readonly json: boolean; readonly debug: boolean }): Failure {
  const error = asError(cause);
  const known = isWaybillError(cause) ? cause : null;
  const message = redactText(error.message);
  const remedy = known?.remedy ?? "This was not expected; WAYBILL_DEBUG=1 shows where it happened.";
  const stack = debug ? redactText(stackOf(error)) : undefined;
  const code = known?.code ?? null;
  const text = json
    ? JSON.stringify({ error: { code, message, remedy, retryable: known?.retryable ?? false, stack } })
    : [`waybill: ${visible(message)}`, `  ${remedy}${code === null ? "" : ` [${code}]`}`, ...(stack === undefined ? [] : [stack])].join(
        "\n",
      );
  return { exitCode: known !== null && wrongUse.has(known.code) ? 2 : 1, text };
}

export const stoppedAtOnce = (): WaybillError => new WaybillError("STOPPED", "stopped by a second signal before everything was settled");

function stackOf(error: Error): string {
  const own = error.stack ?? error.message;
  return error.cause instanceof Error ? `${own}\ncaused by ${stackOf(error.cause)}` : own;
}
