import { readFileSync } from "node:fs";

/** This package's version. Null where a bundler has taken the code out of its package. */
export function packageVersion(): string | null {
  try {
    const { name, version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as Record<string, unknown>;
    return name === "waybill" && typeof version === "string" ? version : null;
  } catch {
    return null;
  }
}
