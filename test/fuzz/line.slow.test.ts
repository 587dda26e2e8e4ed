import { afterAll, beforeAll, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { keptName, readKept } from "./kept.ts";
import { lineNames } from "./line/frames.ts";
import { openLine } from "./line/round.ts";
import { wrongAnswers } from "./line/wrong.ts";
import type { Target } from "./target.ts";
import { openTargets } from "./targets.ts";

/** One kind for each server; `npm run test:fuzz` plays both. */
const kindOf = (name: (typeof lineNames)[number]): "line" | "fake" => (["postgres", "mariadb"].includes(name) ? "fake" : "line");

for (const name of lineNames)
  for (const kind of [kindOf(name)])
    await describeWith(name, `damage to what ${name} answers (${kind})`, () => {
      let target: Target;
      beforeAll(async () => {
        target = await openTargets(kind, name);
      });
      afterAll(() => target[Symbol.asyncDispose]());

      const seeds = [...readKept(keptName(kind, name)).map(({ seed }) => seed), 1];
      test.each(seeds)("the process lives, and all flows when it is over: seed %i", async (seed) => {
        await target.round(seed);
      });
    });

for (const name of new Set(wrongAnswers.map(({ server }) => server)))
  await describeWith(name, `what ${name} said once`, () => {
    let target: Awaited<ReturnType<typeof openLine>>;
    beforeAll(async () => {
      target = await openLine(name, "fake");
    });
    afterAll(() => target[Symbol.asyncDispose]());

    const answers = wrongAnswers.filter(({ server }) => server === name);
    test.each(answers.map((answer) => [answer.name, answer] as const))(
      "%s: the process lives, and all flows when it is over",
      { timeout: 150_000 },
      async (_, answer) => {
        await target.wrong(answer);
      },
    );
  });
