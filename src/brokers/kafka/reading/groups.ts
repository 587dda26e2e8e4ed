import { codes, succeed } from "../codes.ts";
import { askAt, persist, type Link } from "../link.ts";

/**
 * Removes a consumer's group with its offsets; a missing group is no failure. A member that was killed stays in its group until its session
 * expires: the removal is retried for `withinMs`.
 */
export async function removeGroup(link: Link, group: string, withinMs: number): Promise<void> {
  const attempt = async (): Promise<void> => {
    // Only the group's coordinator can remove it.
    const home = await link.coordinator("group", group, link.closing);
    const { results } = await askAt(link, home, link.closing, (connection) => connection.ask("deleteGroups", [[group]]));
    const code = results[0]?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE;
    if (code === codes.GROUP_ID_NOT_FOUND) return;
    const said = code === codes.NON_EMPTY_GROUP ? "it still has members" : null;
    succeed(code, `${link.shown} does not remove the group ${JSON.stringify(group)}`, said);
  };
  await persist(link, link.closing, attempt, { forMs: withinMs, also: codes.NON_EMPTY_GROUP });
}
