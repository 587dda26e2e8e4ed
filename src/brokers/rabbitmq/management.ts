import { request as plain } from "node:http";
import { request as encrypted } from "node:https";
import type { Clock } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { withDeadline } from "../../core/time.ts";
import type { Page, Settings } from "./url.ts";

export interface Binding {
  /** A pattern: * stands for one word, # for any number of them. */
  readonly key: string;
  readonly destination: string;
}

/** The management plugin's HTTP API, for what AMQP itself does not report. It is read, never written. */
export interface Management {
  /** Null when the resource does not exist. */
  get<T>(path: readonly string[], signal: AbortSignal, columns?: readonly string[]): Promise<T | null>;
  bindings(exchange: string, signal: AbortSignal): Promise<readonly Binding[]>;
}

interface ManagementOptions {
  readonly page: Page;
  readonly settings: Settings;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

const maxAnswerBytes = 64 * 1024 * 1024;

export function createManagement({ page, settings, timeoutMs, clock }: ManagementOptions): Management {
  const { origin, tls } = page;
  const login = `${page.user ?? settings.user}:${page.password ?? settings.password}`;
  const headers = { authorization: `Basic ${Buffer.from(login).toString("base64")}`, accept: "application/json" };

  const ask = (url: URL, signal: AbortSignal): Promise<{ status: number; text: string }> =>
    new Promise((resolve, reject) => {
      const options = { headers, signal, ...(tls === null ? {} : { ...tls, rejectUnauthorized: true }) };
      const asked = (tls === null ? plain : encrypted)(url, options, (response) => {
        const parts: Buffer[] = [];
        let bytes = 0;
        response.on("data", (part: Buffer) => {
          bytes += part.length;
          if (bytes > maxAnswerBytes) asked.destroy(new Error(`its answer takes more than ${maxAnswerBytes} bytes`));
          else parts.push(part);
        });
        response.on("error", reject);
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString() }));
      });
      asked.on("error", reject);
      asked.end();
    });

  const get = async <T>(path: readonly string[], outer: AbortSignal, columns: readonly string[] = []): Promise<T | null> => {
    const url = new URL(["api", ...path.map(encodeURIComponent)].join("/"), origin);
    if (columns.length > 0) url.search = `columns=${columns.join(",")}`;
    const failed = (why: string, cause?: unknown): WaybillError =>
      new WaybillError("DESTINATION_UNAVAILABLE", `the management plugin at ${origin.host} cannot be asked: ${why}`, { cause });
    return withDeadline(clock, timeoutMs, outer, async (signal) => {
      const { status, text } = await ask(url, signal).catch((error: unknown) => {
        const cause = asError(error);
        throw failed(
          signal.aborted ? `no answer within ${timeoutMs} ms` : cause.message || String((cause as { code?: unknown }).code),
          cause,
        );
      });
      if (status === 404) return null;
      if (status === 401 || status === 403)
        throw failed(`it refuses this user (${status}): give it the tag monitoring, and permissions on the virtual host`);
      if (status !== 200) throw failed(`it answers ${status}`);
      try {
        return JSON.parse(text) as T;
      } catch (error) {
        throw failed("its answer is no JSON", error);
      }
    });
  };

  return {
    get,
    async bindings(exchange, signal) {
      type Found = readonly { readonly routing_key: string; readonly destination: string }[];
      const found = await get<Found>(["exchanges", settings.vhost, exchange, "bindings", "source"], signal);
      return (found ?? []).map(({ routing_key: key, destination }) => ({ key, destination }));
    },
  };
}

/** Whether a topic exchange sends the topic to a binding with this key. */
export function routes(key: string, topic: string): boolean {
  const match = (pattern: readonly string[], words: readonly string[]): boolean => {
    const [first, ...rest] = pattern;
    if (first === undefined) return words.length === 0;
    if (first === "#") return match(rest, words) || (words.length > 0 && match(pattern, words.slice(1)));
    return words.length > 0 && (first === "*" || first === words[0]) && match(rest, words.slice(1));
  };
  return match(key === "" ? [] : key.split("."), topic.split("."));
}
