import type { PathEvent } from "../core/path-events.ts";
import type { LogLine } from "../core/log.ts";

/** Something worth a line, and who it happened to. */
export interface News extends LogLine {
  readonly at: Date;
  readonly who: string;
}

const sameMs = 2_000;

/** False for news that repeat the last ones of the same sender within moments, so that something that goes on is reported once. */
export function createFresh(): (news: News) => boolean {
  const last = new Map<string, News>();
  return (news) => {
    const before = last.get(news.who);
    last.set(news.who, news);
    return before?.text !== news.text || news.at.getTime() - before.at.getTime() > sameMs;
  };
}

/** The path events after which a window may be published twice. They are recorded as faults, whatever caused them. */
export function faultOf(event: PathEvent): "destination opened" | "lanes lost" | null {
  if (event.type === "destination.opened") return "destination opened";
  return event.type === "lanes.lost" ? "lanes lost" : null;
}
