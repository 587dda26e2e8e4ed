import { WaybillError } from "./errors.ts";

/** A third-party client, which users install themselves: it is loaded when it is first needed. */
export async function loadClient<T>(of: string, name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    throw new WaybillError("DRIVER_MISSING", `the ${of} client is not installed: npm install ${name}`, { cause });
  }
}
