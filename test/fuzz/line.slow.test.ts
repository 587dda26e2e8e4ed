import { afterAll, beforeAll, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { keptName, readKept } from "./kept.ts";
import { lineNames } from "./line/frames.ts";
import { openLine } from "./line/round.ts";
import { wrongAnswers } from "./line/wrong.ts";
import type { Target } from "./target.ts";
import { openTargets } from "./targets.ts";

/** Which kind plays a new seed here; `npm run test:fuzz` plays both. Kept seeds are played of both. */
const kindOf = (name: (typeof lineNames)[number]): "line" | "fake" => (["postgres", "mariadb"].includes(name) ? "fake" : "line");

for (const name of lineNames)
  for (const kind of ["line", "fake"] as const) {
    const kept = readKept(keptName(kind, name));
    const seeds = kindOf(name) === kind ? [...kept, { seed: 1, only: undefined }] : kept;
    if (seeds.length === 0) continue;
    await describeWith(name, `damage to what ${name} answers (${kind})`, () => {
      let target: Target;
      beforeAll(async () => {
        target = await openTargets(kind, name);
      });
      afterAll(() => target[Symbol.asyncDispose]());

      test.each(seeds)("the process lives, and all flows when it is over: seed $seed", async ({ seed, only }) => {
        await target.round(seed, only);
      });
    });
  }

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
      { timeout: 300_000 },
      async (_, answer) => {
        await target.wrong(answer);
      },
    );
  });
