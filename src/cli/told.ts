import { redactText } from "../core/text.ts";
import type { LetterRecord, Letters } from "../contracts/letters.ts";
import type { EventRecord, Operator, Status } from "../contracts/operator.ts";

/**
 * The same operator, without the passwords of URLs in its error texts. Clients, routes and handlers wrote those texts, and may name the
 * server that they could not reach. Payloads and headers, which the service wrote itself, stay as they are.
 */
export function withoutSecrets(operator: Operator): Operator {
  return {
    status: async () => told(await operator.status()),
    list: async (filter) => (await operator.list(filter)).map(toldOf),
    show: async (id) => {
      const event = await operator.show(id);
      return event === null ? null : toldOf(event);
    },
    redrive: (filter, by) => operator.redrive(filter, by),
    discard: (filter, by) => operator.discard(filter, by),
    purge: (before, by, options) => operator.purge(before, by, options),
  };
}

/** The same for letters. */
export function lettersWithoutSecrets(letters: Letters): Letters {
  return {
    groups: async (filter) => (await letters.groups(filter)).map((group) => ({ ...group, error: redactText(group.error) })),
    list: async (filter) => (await letters.list(filter)).map(letterToldOf),
    show: async (seq) => {
      const letter = await letters.show(seq);
      return letter === null ? null : letterToldOf(letter);
    },
    redrive: (filter, by) => letters.redrive(filter, by),
    discard: (filter, by) => letters.discard(filter, by),
    redriven: (consumer, topic, limit) => letters.redriven(consumer, topic, limit),
  };
}

const letterToldOf = <L extends LetterRecord>(letter: L): L => ({
  ...letter,
  error: redactText(letter.error),
  errorDetail: redactText(letter.errorDetail),
});

const told = (status: Status): Status => ({
  ...status,
  holds: { ...status.holds, list: status.holds.list.map(withoutWhy) },
  breakers: status.breakers.map(withoutWhy),
  dead: status.dead.map((group) => ({ ...group, error: redactText(group.error) })),
});

const toldOf = (event: EventRecord): EventRecord => ({
  ...event,
  lastError: shown(event.lastError),
  errorDetail: shown(event.errorDetail),
  hold: shown(event.hold),
});
const withoutWhy = <T extends { readonly why: string }>(held: T): T => ({ ...held, why: redactText(held.why) });
const shown = (text: string | null): string | null => (text === null ? null : redactText(text));
