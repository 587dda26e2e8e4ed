import { isAtLeast, type Finding, type Say } from "./finding.ts";

/** The oldest and the newest version of a server that Waybill's tests run on. */
export interface Tested {
  readonly server: string;
  readonly oldest: string;
  readonly newest: string;
}

/** What the tests say about a server's version. A version outside of them is unknown, not bad. */
export function judgeTested(version: string, { server, oldest, newest }: Tested, { good, unknown }: Say): Finding {
  const ran = `Waybill's tests run on ${server} ${oldest === newest ? oldest : `${oldest} to ${newest}`}`;
  if (!isAtLeast(version, oldest)) return unknown(version, `${ran}, and this version is older: upgrade the server.`);
  // 18.3 is no later than 18: only the numbers that the newest names are compared.
  const short = version.split(".").slice(0, newest.split(".").length).join(".");
  if (!isAtLeast(newest, short)) return unknown(version, `${ran}, and this version is newer: try it with waybill verify first.`);
  return good(version, `${ran}.`);
}
