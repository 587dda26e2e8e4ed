import { WaybillError } from "../../core/errors.ts";

/** The request versions that a broker takes, as it reports them to its clients. */
export interface Versions {
  readonly apiKeys: readonly { readonly apiKey: number; readonly minVersion: number; readonly maxVersion: number }[];
}

export type Wanted = Readonly<Record<string, { readonly key: number; readonly version: number }>>;

/** Only removing groups needs this request: a broker without it can be published to and read. */
const onDemand = "deleteGroups";

export function checkVersions(shown: string, wanted: Wanted, { apiKeys }: Versions): void {
  const taken = new Map(apiKeys.map((api) => [api.apiKey, api]));
  for (const [name, { key, version }] of Object.entries(wanted)) {
    if (name === onDemand) continue;
    const api = taken.get(key);
    if (api !== undefined && api.minVersion <= version && version <= api.maxVersion) continue;
    throw new WaybillError(
      "DRIVER_UNFIT",
      `${shown} does not take version ${version} of the request ${name}: Kafka 3.1 or later is needed`,
    );
  }
}
