import type { Sink } from "../../contracts/sink.ts";
import { BatchWriter } from "./writing/batch-writer.ts";
import { publishAll, type PublishingOptions } from "./writing/publishing.ts";
import { checkTopic, noLeader } from "./topics.ts";

/** Idle writers are kept for reuse: no more than a relay needs, and none that a large publish has grown beyond `keptBytes`. */
const keptWriters = 4;
const keptBytes = 4 * 1024 * 1024;

export function createSink(options: PublishingOptions): Pick<Sink, "publish" | "probe"> {
  const { link, directory } = options;
  const idle: BatchWriter[] = [];
  return {
    async publish(messages, signal) {
      if (messages.length === 0) return [];
      const { results, writer } = await publishAll(options, messages, idle.pop() ?? new BatchWriter(), signal);
      if (idle.length < keptWriters && writer.capacity <= keptBytes) idle.push(writer);
      return results;
    },

    async probe(topic, signal) {
      checkTopic(topic, "ROUTE_FAILED");
      directory.forget(topic);
      const place = (await directory.find([topic], signal)).get(topic)!;
      if (place instanceof Error) throw place;
      const leaderless = place.topic.partitions.findIndex(({ leader }) => !place.brokers.has(leader));
      if (leaderless >= 0) throw noLeader(link.shown, topic, leaderless);
    },
  };
}
