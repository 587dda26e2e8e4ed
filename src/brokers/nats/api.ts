import { isWaybillError, type WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/time.ts";
import { outage } from "../kit/outage.ts";
import type { Connection } from "./driver.ts";
import type { Link } from "./link.ts";
import type { NatsAnswer, Unanswered } from "./requests.ts";

/** JetStream refused a request, with a number that says why. */
export class ApiError extends Error {
  readonly code: number;

  constructor(code: number, description: string) {
    super(`${description} (JetStream error ${code})`);
    this.name = "ApiError";
    this.code = code;
  }
}

/** The JetStream error codes that our code depends on. */
export const codes = {
  streamNameInUse: 10058,
  streamNotFound: 10059,
  subjectsOverlap: 10065,
  consumerNotFound: 10014,
  messageTooLarge: 10054,
  headersTooLarge: 10097,
} as const;

/** Requests to JetStream's own API. They read and change metadata, and never hold messages. */
export interface Api {
  /** The broker's name in error messages. */
  readonly place: string;
  readonly connection: Connection;
  readonly signal: AbortSignal;
  /** Rejects with ApiError, or when there is no answer. */
  ask<T>(what: string, body?: object): Promise<T>;
}

export function createApi(connection: Connection, place: string, signal: AbortSignal): Api {
  return {
    place,
    connection,
    signal,
    async ask<T>(what: string, body?: object) {
      const data = new TextEncoder().encode(body === undefined ? "" : JSON.stringify(body));
      const late: NatsAnswer = { is: "silence", error: new Error("there was no answer in time") };
      const answer = await orAborted(connection.request(`$JS.API.${what}`, data), signal, () => late);
      if ("is" in answer) throw unanswered(answer, what, place);
      const { error, ...result } = answerIn(answer) ?? { error: null };
      if (error === undefined) return result as T;
      const { err_code: number, description } = (error ?? {}) as { err_code?: unknown; description?: unknown };
      if (typeof number !== "number") throw notJetStream(place, what);
      throw new ApiError(number, typeof description === "string" ? description.slice(0, 300) : "refused");
    },
  };
}

/** A list of all consumers comes in pages of some 100 kB. Larger answers would take many times their size once they are parsed. */
const maxAnswer = 8 * 1024 * 1024;

/** The object that an answer of JetStream is; null where it is none. */
export function answerIn(data: Uint8Array): { readonly error?: unknown } | null {
  if (data.byteLength > maxAnswer) return null;
  try {
    const answer = JSON.parse(new TextDecoder().decode(data)) as unknown;
    return typeof answer === "object" && !Array.isArray(answer) ? answer : null;
  } catch {
    return null;
  }
}

export const notJetStream = (place: string, what: string): WaybillError => outage(`${place} does not answer ${what} as JetStream does`);

function unanswered(answer: Unanswered, what: string, place: string): WaybillError {
  if (answer.is === "nobody") return outage(`${place} has no JetStream, or none for this account`);
  return outage(`${place} did not answer ${what}: ${answer.error.message}`, answer.error);
}

/** Asks on the link's connection. A refusal by JetStream becomes a Waybill error. */
export async function asking<T>({ open, place }: Link, signal: AbortSignal, work: (api: Api) => Promise<T>): Promise<T> {
  try {
    return await work(createApi(await open(signal), place, signal));
  } catch (error) {
    if (error instanceof ApiError) throw outage(`${place}: ${error.message}`, error);
    // An answer without the fields that JetStream gives it.
    throw isWaybillError(error) || !(error instanceof TypeError) ? error : outage(`${place} does not answer as JetStream does`, error);
  }
}

/** The stream that takes a subject, or null. JetStream allows no more than one. */
export async function takerOf(api: Api, subject: string): Promise<string | null> {
  const what = "STREAM.NAMES";
  const { streams } = await api.ask<{ readonly streams?: unknown }>(what, { subject });
  // The name becomes a part of subjects and of commands that are written as they are.
  const [first = null] = Array.isArray(streams ?? []) ? ((streams ?? []) as unknown[]) : [0];
  if (first !== null && !(typeof first === "string" && /^[^\s.*>\0]{1,255}$/.test(first))) throw notJetStream(api.place, what);
  return first;
}

export const isApiError = (error: unknown, ...codes: readonly number[]): error is ApiError =>
  error instanceof ApiError && codes.includes(error.code);
