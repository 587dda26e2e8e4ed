import { relative } from "node:path";
import type { VersionResult } from "../evidence/files.ts";

interface Report {
  readonly testResults: readonly {
    readonly status: string;
    readonly name: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

/** What vitest's JSON report says of a row whose files lie in this folder; null where it has written none. */
export function countsIn(report: string | null, folder: string): Pick<VersionResult, "passed" | "failed" | "skipped" | "failures"> {
  const { testResults } = report === null ? { testResults: [] } : (JSON.parse(report) as Report);
  const all = testResults.flatMap(({ assertionResults }) => assertionResults);
  const of = (status: string): readonly string[] => all.flatMap((test) => (test.status === status ? [test.fullName] : []));
  // A file that could not be read, or failed outside its tests.
  const broken = testResults.filter(
    ({ status, assertionResults }) => status === "failed" && !assertionResults.some((test) => test.status === "failed"),
  );
  const [passed, failed] = [of("passed").length, of("failed")];
  const failures = [...failed, ...broken.map(({ name }) => relative(folder, name))];
  if (passed === 0 && failures.length === 0) failures.push(report === null ? "the tests ended without a report" : "no test ran");
  // Tests that the row leaves out are "skipped" too; those that a test file skips are "pending" or "todo".
  return { passed, failed: failures.length, skipped: of("pending").length, failures };
}
