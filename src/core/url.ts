import { WaybillError } from "./errors.ts";

/** A URL in its two halves, before anything is known of what it names. */
export interface Url {
  readonly text: string;
  /** As it may be shown: without who connects, and with which secret. */
  readonly shown: string;
  readonly role: "store" | "broker";
  readonly scheme: string;
  readonly rest: string;
  /** How a URL of this kind is written. */
  readonly example: string;
}

export function refuseUrl({ role, shown }: Pick<Url, "role" | "shown">, why: string): never {
  throw new WaybillError("BAD_URL", `--${role} ${JSON.stringify(shown)} ${why}`);
}
