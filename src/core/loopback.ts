import { isIP } from "node:net";

/** Is this host, a name or an address without brackets, this machine in any case? A name that only a name server could resolve is not. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  const v4 = name.startsWith("::ffff:") ? name.slice("::ffff:".length) : name;
  return name === "localhost" || name === "::1" || (isIP(v4) === 4 && v4.startsWith("127."));
}
