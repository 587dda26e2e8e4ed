import type { Rule } from "../../contracts/doctor.ts";
import { BESIDE_PAYLOAD_BYTES, DEFAULT_MAX_PAYLOAD_BYTES } from "../../core/draft.ts";
import { asWord } from "../../core/text.ts";

/** A rule as a row of docs/doctor.md: setting, when it is bad, what that breaks, the remedy; and the function that looks. */
export const rule = <A>(setting: string, badWhen: string, breaks: string, remedy: string, look: Rule<A>["look"]): Rule<A> => ({
  ...{ setting, badWhen, breaks, remedy, look },
});

/** The remedy for what a topic, or a consumer, lacks. */
export const migrate = (topics = "…", consumers?: string): string =>
  `run \`waybill migrate --broker … --topics ${asWord(topics)}${consumers === undefined ? "" : ` --consumers ${consumers}`}\``;

/** What a broker must take: the largest payload that an outbox adds, with what goes beside it. */
export const eventBytes = DEFAULT_MAX_PAYLOAD_BYTES + BESIDE_PAYLOAD_BYTES;
