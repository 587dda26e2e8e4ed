/** A URL as it may be shown: the place stays readable, who and with which secret does not. */
export function redact(url: string): string {
  const isPath = /^(sqlite|embedded):(?!\/\/)/i.test(url);
  const isUrl = /^[a-z][a-z0-9+.-]*:/i.test(url);
  // Half a URL, or settings of another program: who knows where its secret ends.
  if (!isUrl && /[@=]/.test(url)) return "***";
  if (isUrl && !isPath && !url.includes("://") && url.includes("=")) return url.replace(/:.*/s, ":***");
  const shown = isPath ? url : url.replace(/^([a-z][a-z0-9+.-]*:(?:\/\/)?).*@/is, "$1***@");
  const [place = "", ...queries] = shown.split("?");
  return queries.length === 0 ? place : `${place}?${queries.join("?").replace(/=[^&#]*/g, "=***")}`;
}

/**
 * The same for URLs anywhere in a text, such as an error that a client wrote. A password may hold "@" or "/" that
 * nobody escaped, so everything up to the last "@" of the word goes.
 */
export function redactText(text: string): string {
  return text
    .replace(/([a-z][a-z0-9+.-]*:\/\/)[^\s"'`]*@/gi, "$1***@")
    .replace(/([?&;][\w.-]*(?:pass|pwd|secret|token|key|auth|credential|signature)[\w.-]*=)[^&;\s"'`]*/gi, "$1***");
}
