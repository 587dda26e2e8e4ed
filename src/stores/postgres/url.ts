import { show, WaybillError } from "../../core/errors.ts";

const example = "postgres://user:password@host:5432/database";
const parameters = ["sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "options", "host"] as const;
const sslModes = ["disable", "no-verify", "prefer", "require", "verify-ca", "verify-full"] as const;

/** Parses the URL, and refuses parts that the client would silently ignore. */
export function checkedUrl(text: string, option: "url" | "logUrl" = "url"): URL {
  const store = option === "url" ? "postgres" : "postgres: logUrl";
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new WaybillError("BAD_URL", `postgres: ${option} is not a URL: write it as ${example}`);
  }
  if (url.protocol !== "postgres:" && url.protocol !== "postgresql:")
    throw new WaybillError("BAD_URL", `${store}: a URL is written as ${example}`);
  if (url.pathname.includes("@"))
    throw new WaybillError("BAD_URL", `${store}: the url has an @ after its host: write @ and / in a password as %40 and %2F`);
  const names = [...url.searchParams.keys()];
  for (const name of names) {
    if (!(parameters as readonly string[]).includes(name))
      throw new WaybillError("BAD_URL", `${store}: the URL has a parameter ${show(name)}; it may have ${parameters.join(", ")}`);
    if (url.searchParams.get(name) === "" || names.indexOf(name) !== names.lastIndexOf(name))
      throw new WaybillError("BAD_URL", `${store}: the URL's parameter ${name} must stand there once, with a value`);
  }
  const mode = url.searchParams.get("sslmode");
  if (mode !== null && !(sslModes as readonly string[]).includes(mode))
    throw new WaybillError("BAD_URL", `${store}: sslmode is ${sslModes.join(", ")}, not ${show(mode)}`);
  return url;
}
