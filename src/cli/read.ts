/** Rejects a value. The caller knows whether the value came from a flag or a file. */
export type Refuse = (why: string) => never;
export type Read<T> = (text: string, refuse: Refuse) => T;

export const asIs: Read<string> = (text, refuse) => (text === "" ? refuse("must not be empty") : text);

export const whole =
  (least: number, most: number): Read<number> =>
  (text, refuse) => {
    const number = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    return number >= least && number <= most
      ? number
      : refuse(`must be a whole number from ${least} to ${most}, not ${JSON.stringify(text)}`);
  };

export const oneOf =
  <const T extends string>(choices: readonly T[]): Read<T> =>
  (text, refuse) =>
    choices.find((choice) => choice === text) ?? refuse(`must be one of ${choices.join(", ")}, not ${JSON.stringify(text)}`);

/** "a,b" as a list; spaces around the commas do not count. */
export const names: Read<readonly string[]> = (text, refuse) => {
  const list = text.split(",").map((name) => name.trim());
  return list.includes("") ? refuse(`must be names with commas between them, not ${JSON.stringify(text)}`) : list;
};

/** "a=t,a=u,b=t" as the topics of each consumer. The first "=" ends the name: topics may contain more. */
export const consumerTopics: Read<Readonly<Record<string, readonly string[]>>> = (text, refuse) => {
  const found: Record<string, string[]> = Object.create(null) as Record<string, string[]>;
  for (const pair of names(text, refuse)) {
    const [, consumer, topic] = /^([^=]+)=(.+)$/.exec(pair) ?? [];
    if (consumer === undefined || topic === undefined)
      return refuse(`must be consumers with a topic each, such as shipping=order.events, not ${JSON.stringify(pair)}`);
    (found[consumer] ??= []).push(topic);
  }
  return found;
};

export const seq: Read<bigint> = (text, refuse) =>
  /^\d{1,19}$/.test(text) ? BigInt(text) : refuse(`must be a seq such as 1234, not ${JSON.stringify(text)}`);

/** Only with a date, and a zone for a time: "12:00" or "tomorrow" would mean different moments on different machines. */
export const moment: Read<Date> = (text, refuse) => {
  const at = new Date(/^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d))?$/.test(text) ? text : Number.NaN);
  return Number.isNaN(at.getTime()) ? refuse(`must be a moment such as 2030-01-31T12:00:00Z, not ${JSON.stringify(text)}`) : at;
};

/** "0-21,40" as lane numbers. */
export const laneNumbers =
  (lanes: number): Read<readonly number[]> =>
  (text, refuse) => {
    const found = new Set<number>();
    for (const part of text.split(",")) {
      const [, from, to = from] = /^(\d{1,3})(?:-(\d{1,3}))?$/.exec(part.trim()) ?? [];
      const [first, last] = [Number(from ?? Number.NaN), Number(to ?? Number.NaN)];
      if (!(first <= last && last < lanes))
        return refuse(`must be lanes from 0 to ${lanes - 1} such as 0-21,40, not ${JSON.stringify(text)}`);
      for (let lane = first; lane <= last; lane++) found.add(lane);
    }
    return [...found].sort((a, b) => a - b);
  };
