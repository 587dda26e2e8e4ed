import { asError } from "../../core/errors.ts";
import { orAborted } from "../../core/time.ts";
import { codes, type Connection } from "./driver.ts";
import type { Binding, Management } from "./management.ts";
import { isRefusal, onChannel, type Topology } from "./topology.ts";
import type { Settings } from "./url.ts";

export interface Answers extends Topology {
  readonly version: string;
  readonly topics: readonly string[];
  /** Null where this user may not ask. */
  readonly exchangeThere: boolean | null;
  /** Null without the management plugin's URL; an error where the plugin could not be asked. */
  readonly page: PageAnswers | Error | null;
}

/** What the management plugin adds. An error stands for what this user may not see. */
export interface PageAnswers {
  readonly nodes: readonly NodeAnswers[] | Error;
  readonly exchange: { readonly type: string; readonly durable: boolean; readonly arguments: Arguments } | null;
  readonly bindings: readonly Binding[];
  readonly queues: readonly QueueAnswers[];
  readonly policies: readonly PolicyAnswers[] | Error;
}

export type Arguments = Readonly<Record<string, string | number | boolean | undefined>>;

export interface NodeAnswers {
  readonly name: string;
  readonly running: boolean;
  readonly mem_alarm?: boolean;
  readonly disk_free_alarm?: boolean;
  readonly partitions?: readonly string[];
}

export interface QueueAnswers {
  readonly name: string;
  readonly type: string;
  readonly durable: boolean;
  readonly auto_delete: boolean;
  readonly exclusive: boolean;
  readonly arguments: Arguments;
  /** The nodes that have a quorum queue. */
  readonly members?: readonly string[];
}

export interface PolicyAnswers {
  readonly name: string;
  /** A regular expression for names. */
  readonly pattern: string;
  readonly "apply-to": string;
  readonly priority: number;
  readonly definition: Arguments;
  /** Set by an operator, and stronger than the others. */
  readonly operator: boolean;
}

export interface Asking extends Topology {
  readonly connection: Connection;
  readonly management: Management | null;
  readonly settings: Settings;
}

export async function readAnswers(asking: Asking, topics: readonly string[], signal: AbortSignal): Promise<Answers> {
  const { connection, management, exchange, queueType } = asking;
  const there = onChannel(connection, (channel) => channel.checkExchange(exchange)).then(
    () => true,
    (error: unknown) => {
      if (isRefusal(error, codes.notFound)) return false;
      if (isRefusal(error, codes.accessRefused)) return null;
      throw error;
    },
  );
  const exchangeThere = await orAborted(there, signal, () => null);
  const page = management === null ? null : await readPage(management, asking, signal).catch(asError);
  return { version: connection.version, exchange, queueType, topics, exchangeThere, page };
}

async function readPage(management: Management, { exchange, settings: { vhost } }: Asking, signal: AbortSignal): Promise<PageAnswers> {
  const list = async <T>(path: readonly string[], columns: readonly string[]): Promise<readonly T[]> =>
    (await management.get<readonly T[]>(path, signal, columns)) ?? [];
  type Policy = Omit<PolicyAnswers, "operator">;
  const columns = ["name", "pattern", "apply-to", "priority", "definition"];
  const policies = async (kind: string, operator: boolean): Promise<readonly PolicyAnswers[]> =>
    (await list<Policy>([kind, vhost], columns)).map((policy) => ({ ...policy, operator }));
  const seen = ["name", "type", "durable", "auto_delete", "exclusive", "arguments", "members"];
  return {
    exchange: await management.get(["exchanges", vhost, exchange], signal),
    bindings: await management.bindings(exchange, signal),
    queues: await list<QueueAnswers>(["queues", vhost], seen),
    nodes: await list<NodeAnswers>(["nodes"], ["name", "running", "mem_alarm", "disk_free_alarm", "partitions"]).catch(asError),
    policies: await Promise.all([policies("policies", false), policies("operator-policies", true)]).then((both) => both.flat(), asError),
  };
}
