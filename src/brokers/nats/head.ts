/** The first line and the headers, which come before a message's data. */
export interface Head {
  /** The number and the text of the first line; 0 for a message without a status. Any publisher can write one. */
  readonly status: number;
  readonly description: string;
  readonly headers: readonly (readonly [string, string])[];
  /** False where the bytes are no headers. */
  readonly readable: boolean;
}

const none: Head = { status: 0, description: "", headers: [], readable: true };
const unreadable: Head = { ...none, readable: false };
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const version = "NATS/1.0";
const maxHeaders = 10_000;

/**
 * Does not trust the bytes. The client's own parser throws on a name with a space, in the middle of its input, and the connection receives
 * nothing from then on. Here a name may be anything. A line without a colon is skipped, as the client does.
 */
export function readHead(bytes: Uint8Array): Head {
  if (bytes.byteLength === 0) return none;
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return unreadable;
  }
  const lines = text.split("\r\n", maxHeaders);
  if (!text.startsWith(version) || lines.length === maxHeaders) return unreadable;
  const headers: [string, string][] = [];
  for (let i = 1; i < lines.length; i++) {
    const line = lines[i]!;
    const colon = line.indexOf(":");
    if (colon > 0) headers.push([line.slice(0, colon), line.slice(colon + 1).trim()]);
  }
  return { ...statusOf(lines[0]!.slice(version.length)), headers, readable: true };
}

/** Parses ` 409 Consumer Deleted`. A publisher may have written a line of any length, so nothing here looks at a character twice. */
function statusOf(rest: string): Pick<Head, "status" | "description"> {
  const said = rest.startsWith(" ") ? rest.trim() : "";
  const isStatus = /^\d{3}(?: |$)/.test(said);
  return isStatus ? { status: Number(said.slice(0, 3)), description: said.slice(3).trimStart() } : none;
}
