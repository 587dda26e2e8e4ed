import { codes, KafkaRefusal } from "./codes.ts";
import type { AnswerOf, Connection } from "./driver.ts";

/** Settings by name, without those that the broker did not report; its refusal where we may not ask. */
export type Told = Readonly<Record<string, string>> | KafkaRefusal;

const resources = { topic: 2, broker: 4 } as const;

/** Reads the settings with these keys, of topics or of the broker at the other end. */
export async function readSettings(
  connection: Connection,
  kind: keyof typeof resources,
  names: readonly string[],
  configurationKeys: readonly string[],
): Promise<ReadonlyMap<string, Told>> {
  if (names.length === 0) return new Map();
  const asked = names.map((resourceName) => ({ resourceType: resources[kind], resourceName, configurationKeys }));
  const { results } = await connection.ask("describeConfigs", [asked, false, false]);
  return new Map(results.map((result) => [result.resourceName, toldIn(result)]));
}

function toldIn({ errorCode, errorMessage, configs }: AnswerOf<"describeConfigs">["results"][number]): Told {
  if (errorCode !== codes.NONE) return new KafkaRefusal(errorCode, "This user may not ask", errorMessage);
  return Object.fromEntries(configs.flatMap(({ name, value }) => (typeof value === "string" ? [[name, value]] : [])));
}
