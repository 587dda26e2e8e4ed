import { closeSync, existsSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { asError, WaybillError } from "../../core/errors.ts";
import { count, visible } from "../../core/text.ts";
import { table, type Output } from "../output.ts";
import { page, pageTitle } from "./page.ts";
import { leftWords, type RunReport } from "./report.ts";

const jsonBeside = (path: string): string => `${path.replace(/\.html?$/i, "")}.json`;

/** Runs before anything begins, while nothing is lost: refuses a report that cannot be written, or would overwrite a foreign file. */
export function checkReport(path: string): void {
  if (/\.json$/i.test(path))
    throw new WaybillError(
      "INVALID_OPTION",
      `--report ${path} is a page: call it ${path.replace(/json$/i, "html")}, and the JSON goes beside it`,
    );
  for (const file of [path, jsonBeside(path)]) {
    let foreign = false;
    try {
      const there = existsSync(file);
      closeSync(openSync(file, "a"));
      if (!there) rmSync(file);
      else foreign = statSync(file).isFile() && !mayGo(readFileSync(file, "utf8"));
    } catch (cause) {
      throw unwritable(path, cause);
    }
    if (foreign)
      throw new WaybillError(
        "INVALID_OPTION",
        `--report ${path} would overwrite ${file}, which is no report of waybill verify: choose another name, or move that file away`,
      );
  }
}

/** An empty file, or the page or JSON of an older report. */
function mayGo(text: string): boolean {
  if (text === "" || text.includes(pageTitle)) return true;
  try {
    const { run, verdicts } = JSON.parse(text) as Partial<RunReport>;
    return typeof run === "string" && run.startsWith("verify_") && Array.isArray(verdicts);
  } catch {
    return false;
  }
}

const unwritable = (path: string, cause: unknown): WaybillError =>
  new WaybillError("INVALID_OPTION", `--report ${path} cannot be written: ${asError(cause).message}`, { cause });

/** Writes the report and prints it. Returns the error when the report could not be written; it is printed even then. */
export function tell(out: Output, given: RunReport, path: string | undefined): WaybillError | null {
  const failure = path === undefined ? null : write(given, path);
  const report = failure === null ? given : { ...given, notes: [...given.notes, failure.message] };
  out.answer(report, () => {
    const { counts, faults, left } = report;
    const met = Object.entries(faults).map(([name, times]) => `${name} ${times} ×`);
    return [
      ...table(
        out,
        ["invariant", "verdict", "why"],
        report.verdicts.map(({ invariant, verdict, why }) => [invariant, verdict, why]),
      ),
      "",
      `${count(counts.events, "event")} committed, ${counts.published} in the broker, ${counts.copies} copies, ${count(counts.effects, "effect")}`,
      `faults: ${met.length === 0 ? "none" : met.join(", ")}`,
      ...report.notes.map((note) => `- ${note}`),
      ...(path === undefined || failure !== null ? [] : [`report: ${path}`]),
      report.held ? "Every promise held." : "NOT every promise held.",
      ...(left === null ? [] : leftWords(left)),
    ];
  });
  return failure;
}

function write(report: RunReport, path: string): WaybillError | null {
  try {
    writeFileSync(path, page(report));
    writeFileSync(jsonBeside(path), `${JSON.stringify(report, null, 2).split("\n").map(visible).join("\n")}\n`);
    return null;
  } catch (cause) {
    return unwritable(path, cause);
  }
}

/** All that verify prints itself, to be searched for secrets. */
export function ownWords(lines: readonly string[], report: RunReport): readonly { readonly where: string; readonly text: string }[] {
  return [
    { where: "the lines of verify", text: lines.join("\n") },
    { where: "the notes of the report", text: report.notes.join("\n") },
    { where: "the page of the report", text: page(report) },
    { where: "the JSON of the report", text: JSON.stringify(report) },
  ];
}
