import type { VersionResult } from "../evidence/files.ts";

const mark = "<!-- what follows is written by npm run test:versions -- --evidence -->";

/** The table of docs/versions.md. */
export function versionsPart(results: readonly VersionResult[]): string {
  const row = ({ name, version, date, passed, failed, skipped, why }: VersionResult): string =>
    why === null
      ? `| ${name} | ${version} | ${passed} | ${failed} | ${skipped} | ${date} |`
      : `| ${name} | could not be had: ${why} | | | | ${date} |`;
  return ["| | version | passed | failed | skipped | run on |", "|---|---|---|---|---|---|", ...results.map(row)].join("\n");
}

export const filledIn = (page: string, part: string): string => `${page.slice(0, page.indexOf(mark) + mark.length)}\n\n${part}\n`;
