import { codes, isPassing, KafkaRefusal } from "./codes.ts";
import type { Link } from "./link.ts";

const answers = { NON_EMPTY_GROUP: 68, GROUP_ID_NOT_FOUND: 69 } as const;

/**
 * Removes consumers' groups, with their offsets; those that are not there are no failure. A member that was killed is in its group until its
 * session is over: that is waited for, for `withinMs`.
 */
export async function removeGroups(link: Link, groups: readonly string[], withinMs: number): Promise<void> {
  const until = link.clock.monotonic() + withinMs;
  const remove = async (group: string): Promise<void> => {
    for (;;) {
      const code = await attempt(link, group);
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

/** On a connection of its own: only the group's coordinator can remove it. */
async function attempt(link: Link, group: string): Promise<number> {
  const done = new AbortController();
  try {
    const connection = await link.dial(await link.coordinator("group", group, link.closing), done.signal);
    const { results } = await connection.ask("deleteGroups", [[group]]);
    return results[0]?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE;
  } catch (error) {
    if (error instanceof KafkaRefusal) return error.kafkaCode;
    throw error;
  } finally {
    done.abort();
  }
}
