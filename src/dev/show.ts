import type { Clock } from "../core/clock.ts";
import { redactText } from "../core/text.ts";
import type { News } from "./news.ts";
import { clockTime, picture, plainLine, type ShopScene } from "./scene.ts";
import { createCanvas, type Screen } from "./screen.ts";

/** The terminal that started the shop, and where the shop can be shown. */
export interface Audience {
  readonly out: { readonly json: boolean; line(text: string): void };
  /** Only where standard output is a terminal. */
  readonly screen?: Screen;
  /** Reports each SIGTERM, SIGINT and SIGHUP, with its number: the first asks for a drain, the second for a stop. */
  onSignal(listener: (nth: number) => void): void;
}

/** Shows the shop: as a moving picture, or as lines. */
export interface Show {
  news(news: News): void;
  /** Shows the scene, again and again, until closed. */
  run(scene: () => ShopScene): Promise<void>;
  close(): Promise<void>;
}

const pictureMs = 200;
const lineMs = 1_000;

export function createShow(terminal: Audience, clock: Clock): Show {
  const { screen, out } = terminal;
  const closed = new AbortController();
  let running: Promise<void> = Promise.resolve();
  const every = async (ms: number, step: () => void): Promise<void> => {
    for (step(); !closed.signal.aborted; step()) await clock.sleep(ms, closed.signal);
  };
  const close = async (): Promise<void> => {
    closed.abort();
    await running;
  };

  if (screen !== undefined && !out.json) {
    const canvas = createCanvas(screen);
    return {
      news: () => undefined,
      run: (scene) => (running = every(pictureMs, () => canvas.draw((columns, rows) => picture(scene(), columns, rows)))),
      async close() {
        await close();
        canvas.close();
      },
    };
  }
  const json = (type: string, fields: object): void =>
    out.line(redactText(JSON.stringify({ time: new Date(clock.now()).toISOString(), type, ...fields })));
  return {
    news({ at, who, level, text }) {
      if (out.json) json("dev.news", { level, who, text });
      else out.line(`${clockTime(at)} ${level.padEnd(5)} ${who}: ${redactText(text)}`);
    },
    run: (scene) =>
      (running = every(lineMs, () => {
        const now = scene();
        if (!out.json) out.line(`${clockTime(new Date(clock.now()))} info  ${plainLine(now)}`);
        else if (now.glance !== null) json("dev.progress", { phase: now.phase, elapsedMs: Math.round(now.elapsedMs), ...now.glance });
      })),
    close,
  };
}
