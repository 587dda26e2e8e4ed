import { adapterOf, adapters as table } from "./adapters.ts";

/** A URL as it may be shown: the host or path stays readable, the user and the secrets do not. */
export function redact(url: string, adapters = table): string {
  const isPath = adapterOf(url, adapters)?.server === null && !/^[^:]*:\/\//.test(url);
  const isUrl = /^[a-z][a-z0-9+.-]*:/i.test(url);
  // Half a URL, or another program's settings: it is unknown where the secret ends.
  if (!isUrl && /[@=]/.test(url)) return "***";
  if (isUrl && !isPath && !url.includes("://") && url.includes("=")) return url.replace(/:.*/s, ":***");
  const shown = isPath ? url : url.replace(/^([a-z][a-z0-9+.-]*:(?:\/\/)?).*@/is, "$1***@");
  const [place = "", ...queries] = shown.split("?");
  return queries.length === 0 ? place : `${place}?${queries.join("?").replace(/=[^&#]*/g, "=***")}`;
}
