import type { LineName } from "./frames.ts";

export interface Config {
  readonly name: LineName;
  /** Through the line. */
  readonly url: string;
  /** Of the clean side: SQLite, beside a broker; the embedded broker, beside a store. */
  readonly store: string;
  readonly file: string;
  readonly topic: string;
}

export type Told =
  | { readonly type: "ready"; readonly what: string }
  | { readonly type: "trouble"; readonly where: string; readonly error: string; readonly ours: boolean | null }
  | { readonly type: "failed"; readonly error: string }
  | { readonly type: "uncaught"; readonly error: string }
  | { readonly type: "late"; readonly what: string }
  | { readonly type: "rss"; readonly bytes: number }
  | { readonly type: "ended" };
