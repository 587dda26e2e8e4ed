import { WaybillError } from "./errors.ts";

/** A URL split into scheme and rest, before anything is known about what it names. */
export interface Url {
  readonly text: string;
  /** The URL as it may be shown: without the user and the secret that it connects with. */
  readonly shown: string;
  readonly role: "store" | "broker" | "log-url";
  readonly scheme: string;
  readonly rest: string;
  /** How a URL of this kind is written. */
  readonly example: string;
}

export function refuseUrl({ role, shown }: Pick<Url, "role" | "shown">, why: string): never {
  throw new WaybillError("BAD_URL", `--${role} ${JSON.stringify(shown)} ${why}`);
}
