import type * as Client from "@platformatic/kafka";
import { asError } from "../../../core/errors.ts";
import { codes, isPassing, KafkaRefusal } from "../codes.ts";
import type { Link } from "../link.ts";
import type { Address, Settings } from "../url.ts";

const answers = { NON_EMPTY_GROUP: 68, GROUP_ID_NOT_FOUND: 69 } as const;

/**
 * Removes consumers' groups, with their offsets; those that are not there are no failure. A member that was killed is in its group until its
 * session is over: that is waited for, for `withinMs`.
 *
 * The request is not among those of the adapter's connections, which every broker must have: nobody needs it who only publishes and reads.
 */
export async function removeGroups(link: Link, settings: Settings, groups: readonly string[], withinMs: number): Promise<void> {
  const until = link.clock.monotonic() + withinMs;
  const remove = async (group: string): Promise<void> => {
    for (;;) {
      const code = await attempt(link, settings, group);
      if (code === codes.NONE || code === answers.GROUP_ID_NOT_FOUND) return;
      if ((code !== answers.NON_EMPTY_GROUP && !isPassing(code)) || link.clock.monotonic() > until) {
        const said = code === answers.NON_EMPTY_GROUP ? "it still has members" : null;
        throw new KafkaRefusal(code, `${link.shown} does not remove the group ${JSON.stringify(group)}`, said);
      }
      await link.clock.sleep(250, link.closing);
      link.closing.throwIfAborted();
    }
  };
  for (const group of groups) await remove(group);
}

async function attempt(link: Link, settings: Settings, group: string): Promise<number> {
  try {
    return await ask(link, settings, await link.coordinator("group", group, link.closing), group);
  } catch (error) {
    if (error instanceof KafkaRefusal) return error.kafkaCode;
    throw error;
  }
}

type Answer = { readonly results: readonly { readonly errorCode: number }[] };

/** On a connection of its own. */
async function ask({ clock, timeoutMs, shown }: Link, { sasl, tls }: Settings, { host, port }: Address, group: string): Promise<number> {
  const client: typeof Client = await import("@platformatic/kafka");
  const connection = new client.Connection("waybill", {
    connectTimeout: timeoutMs,
    requestTimeout: timeoutMs,
    ...(tls === null ? {} : { tls: { ...tls, rejectUnauthorized: true, minVersion: "TLSv1.2" } }),
    ...(sasl === null ? {} : { sasl: { mechanism: sasl.mechanism, username: sasl.user, password: sasl.password } }),
  });
  const done = new AbortController();
  const late = clock.sleep(2 * timeoutMs, done.signal).then(() => {
    throw new KafkaRefusal(codes.REQUEST_TIMED_OUT, shown);
  });
  const answered = new Promise<Answer>((resolve, reject) => {
    connection.on("error", reject);
    Promise.resolve(connection.connect(host, port)).then(() => {
      client.deleteGroupsV2.api(connection, [group], (error, answer) => {
        const told = (error as { readonly response?: Answer } | null)?.response ?? answer;
        if (told !== undefined) resolve(told);
        else reject(asError(error));
      });
    }, reject);
  });
  try {
    const { results } = await Promise.race([answered, late]);
    return results[0]?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE;
  } finally {
    late.catch(() => undefined);
    answered.catch(() => undefined);
    done.abort();
    void connection.close();
    connection.socket?.destroy();
  }
}
