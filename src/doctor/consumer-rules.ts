import type { ConsumerState } from "../contracts/consumers.ts";
import type { Rule } from "../contracts/doctor.ts";
import { systemClock } from "../core/clock.ts";
import { inWords } from "../core/in-words.ts";
import { asWord, count, shellWord } from "../core/text.ts";

export interface InboxAnswers {
  readonly consumer: string;
  /** Null where no inbox was asked. */
  readonly state: ConsumerState | null;
}

export const inboxRules: readonly Rule<InboxAnswers>[] = [
  {
    setting: "consumer",
    badWhen: "never; unknown when the database has no trace of it",
    breaks: "",
    remedy: "check the name, and that `--store` is the database of its inbox",
    look({ consumer, state }, { good, unknown }) {
      if (state === null) return [];
      const { letters, retrying, handled } = state;
      if ((handled ?? 0) > 0 || retrying !== null || letters.length > 0)
        return good(`${handled ?? 0} events applied`, "The inbox has marks of it, counted up to 100,000.");
      return unknown(consumer, "The database has no trace of it: check the name, and that --store is the database of its inbox.");
    },
  },
  {
    setting: "letters",
    badWhen: "never; unknown when some wait for a decision",
    breaks: "",
    remedy: "`waybill dead list --consumer …`, then redrive or discard them",
    look({ consumer, state }, { good, unknown }) {
      if (state === null) return [];
      const waits = state.letters.filter(({ letters, redriven }) => letters > redriven);
      if (waits.length === 0) return good("none", "No letter of it waits for a decision.");
      const sum = waits.reduce((all, { letters, redriven }) => all + letters - redriven, 0);
      const oldest = Math.max(0, systemClock.now() - Math.min(...waits.map(({ oldest: since }) => since.getTime())));
      return unknown(
        `${count(sum, "letter")}, the oldest for ${inWords(oldest)}`,
        `They wait for a decision: look at waybill dead list --consumer ${shellWord(consumer)}, then redrive or discard them.`,
      );
    },
  },
  {
    setting: "retries",
    badWhen: "never",
    breaks: "",
    remedy: "",
    look({ state }, { good }) {
      if (state === null) return [];
      const { retrying } = state;
      if (retrying === null) return good("none", "No event of it has failed and is tried again.");
      const ago = inWords(Math.max(0, systemClock.now() - retrying.failedAt.getTime()));
      return good(
        `${count(retrying.events, "event")}, the last failed ${ago} ago`,
        "They are tried again; each becomes a letter when its last attempt fails.",
      );
    },
  },
];

export interface ConsumerAnswers {
  readonly consumer: string;
  readonly topic: string;
  /** Null where the consumer has no place in the topic, or the broker cannot tell. */
  readonly lag: number | null | Error;
  /** Its dead-letter topic, and in `error` why that topic takes no letters. Null where the inbox keeps them. */
  readonly letters: { readonly topic: string; readonly error: string | null } | null;
}

export const consumerRules: readonly Rule<ConsumerAnswers>[] = [
  {
    setting: "lag",
    badWhen: "never; unknown when the consumer has no place in the topic, or the broker cannot tell",
    breaks: "",
    remedy: "start its subscriber, or give it a place with `waybill migrate --broker … --topics … --consumers …`",
    look({ consumer, topic, lag }, { good, unknown }) {
      if (lag instanceof Error) return unknown(null, `The broker did not tell: ${lag.message}`);
      if (lag !== null) return good(count(lag, "message"), "So many messages of the topic it is not done with.");
      return unknown(
        null,
        `It has no place in the topic yet, or the broker cannot tell: start its subscriber, or run waybill migrate --broker URL --topics ${asWord(topic)} --consumers ${consumer}.`,
      );
    },
  },
  {
    setting: "dead-letter topic",
    badWhen: "it is not there, or takes no messages: an event that needs a letter holds its aggregate, and many of them hold the topic",
    breaks: "I",
    remedy: "create it with `waybill migrate --broker … --topics …`",
    look({ letters }, { good, bad }) {
      if (letters === null) return [];
      if (letters.error === null) return good(letters.topic, "The broker takes it, as far as a look can tell that publishes nothing.");
      return bad(letters.topic, `It takes no letters (${letters.error})`, {
        remedy: `create it with waybill migrate --broker URL --topics ${asWord(letters.topic)}`,
      });
    },
  },
];
