import { WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";
import type { Answer, Connection } from "./driver.ts";

/** JetStream refused a request, with a number that says why. */
export class ApiError extends Error {
  readonly code: number;

  constructor(code: number, description: string) {
    super(`${description} (JetStream error ${code})`);
    this.name = "ApiError";
    this.code = code;
  }
}

/** Those numbers that something depends on. */
export const codes = {
  streamNameInUse: 10058,
  streamNotFound: 10059,
  subjectsOverlap: 10065,
  consumerNotFound: 10014,
  messageTooLarge: 10054,
  headersTooLarge: 10097,
} as const;

/** Requests of JetStream's own API; they change and tell metadata, and never hold messages. */
export interface Api {
  readonly connection: Connection;
  readonly signal: AbortSignal;
  /** Rejects with ApiError, or when there is no answer. */
  ask<T>(what: string, body?: object): Promise<T>;
}

export function createApi(connection: Connection, place: string, signal: AbortSignal): Api {
  return {
    connection,
    signal,
    async ask<T>(what: string, body?: object) {
      const data = new TextEncoder().encode(body === undefined ? "" : JSON.stringify(body));
      const late: Answer = { is: "silence", error: new Error("there was no answer in time") };
      const answer = await orAborted(connection.request({ subject: `$JS.API.${what}`, data }), signal, () => late);
      if (answer.is !== "answer") throw unanswered(answer, what, place);
      const { error, ...result } = JSON.parse(new TextDecoder().decode(answer.message.data)) as {
        error?: { err_code: number; description: string };
      };
      if (error !== undefined) throw new ApiError(error.err_code, error.description);
      return result as T;
    },
  };
}

function unanswered(answer: Exclude<Answer, { is: "answer" }>, what: string, place: string): WaybillError {
  if (answer.is === "nobody") return new WaybillError("DESTINATION_UNAVAILABLE", `${place} has no JetStream, or none for this account`);
  const { error: cause } = answer;
  return new WaybillError("DESTINATION_UNAVAILABLE", `${place} did not answer ${what}: ${cause.message}`, { cause });
}

/** What the caller can do nothing about, in Waybill's words. */
export function explain(error: unknown, place: string): unknown {
  if (!(error instanceof ApiError)) return error;
  return new WaybillError("DESTINATION_UNAVAILABLE", `${place}: ${error.message}`, { cause: error });
}
