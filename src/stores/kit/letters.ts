import { type Letter, type LetterRow, letterRow } from "../../core/letter.ts";

/** What is kept of a letter, by column: each is called as its field, in snake case. Its key comes first: consumer, topic, id and digest. */
export const letterColumns = (letter: Letter): readonly (readonly [column: string, value: LetterRow[keyof LetterRow]])[] =>
  Object.entries(letterRow(letter)).map(([name, value]) => [name.replaceAll(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`), value]);
