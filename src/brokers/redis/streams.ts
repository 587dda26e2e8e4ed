import { show, WaybillError } from "../../core/errors.ts";
import { never } from "../../core/time.ts";
import { isCount, isList } from "./answers.ts";
import { explain, wrong, type Link } from "./link.ts";
import { provisionScript, purgeScript } from "./scripts.ts";

/** How many entries one call deletes; the server does nothing else meanwhile. */
const chunk = "10000";

export async function provisionStreams(link: Link, topics: readonly string[], consumers: readonly string[]): Promise<void> {
  check("topic", topics);
  check("consumer", consumers);
  const { answers, landed } = link.send(
    await link.open(never),
    topics.map((topic) => provisionScript(topic, ...consumers)),
  );
  await landed;
  for (const [i, answer] of answers.entries()) if (answer instanceof Error) failed(link, topics[i]!)(answer);
}

export async function purgeStream(link: Link, before: Date, topics: readonly string[]): Promise<number> {
  check("topic", topics);
  if (!(before instanceof Date) || Number.isNaN(before.getTime())) {
    throw new WaybillError("INVALID_OPTION", `purge needs a valid Date, not ${show(before)}`);
  }
  // Entry ids begin with the server's time in milliseconds.
  const limit = `${Math.max(0, before.getTime())}-0`;
  let purged = 0;
  for (const topic of topics) {
    for (let all = false; !all;) {
      const [reply] = await link.ask(await link.open(never), [purgeScript(topic, limit, chunk)]).catch(failed(link, topic));
      const [deleted, done] = isList(reply) ? reply : [];
      if (!isCount(deleted) || !isCount(done)) throw wrong(link.shown, "XTRIM");
      purged += deleted;
      all = done === 1;
    }
  }
  return purged;
}

function check(what: string, names: readonly string[]): void {
  if (!Array.isArray(names) || names.some((name) => typeof name !== "string" || name === "")) {
    throw new WaybillError("INVALID_OPTION", `a ${what} must have a name: ${show(names)}`);
  }
}

const failed =
  (link: Link, topic: string) =>
  (error: unknown): never => {
    throw explain(error, `${link.shown}, stream ${JSON.stringify(topic)},`);
  };
