import { visible } from "../core/text.ts";
import type { Line } from "./scene.ts";

const tones = { plain: "", bold: "1", dim: "2", good: "32", warn: "33", bad: "31" } as const;

/** A terminal that can be drawn on. */
export interface Screen {
  size(): { readonly columns: number; readonly rows: number };
  write(text: string): void;
  readonly colour: boolean;
}

/** Draws over what it drew before. */
interface Canvas {
  draw(lines: (columns: number, rows: number) => readonly Line[]): void;
  /** Leaves the last picture where it is, and the cursor below it. */
  close(): void;
}

export function createCanvas(screen: Screen): Canvas {
  let drawn = 0;
  let width = 0;
  return {
    draw(lines) {
      const { columns, rows } = screen.size();
      const picture = lines(columns, rows).map((line) => paint(line, columns - 1, screen.colour));
      // After a change of width the terminal has wrapped the old picture, so the number of its rows is unknown.
      const home = drawn === 0 ? "\u001b[?25l" : columns === width ? `\u001b[${drawn}A\r` : "\u001b[2J\u001b[H";
      screen.write(`${home}${picture.map((text) => `${text}\u001b[K\n`).join("")}\u001b[J`);
      drawn = picture.length;
      width = columns;
    },
    close() {
      if (drawn > 0) screen.write("\u001b[?25h");
      drawn = 0;
    },
  };
}

/** Cut to the width first: an escape sequence takes no room, and must not be cut in two. */
export function paint(line: Line, width: number, colour: boolean): string {
  let left = Math.max(0, width);
  let text = "";
  for (const [tone, piece] of line) {
    const shown = visible(piece).slice(0, left);
    left -= shown.length;
    text += colour && tones[tone] !== "" && shown !== "" ? `\u001b[${tones[tone]}m${shown}\u001b[0m` : shown;
  }
  return text;
}
