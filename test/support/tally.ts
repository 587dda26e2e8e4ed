import type { Reporter, TestModule } from "vitest/node";

/** The last line of a run, for people and for `.ci/run`. A file or suite that fails outside its tests counts as one failed test. */
export default class Tally implements Reporter {
  #line = "";

  onInit(): void {
    process.once("exit", () => process.stdout.write(this.#line));
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    // `pending` is what an interrupted run never reached: it has not passed.
    const count = { passed: 0, failed: unhandledErrors.length, skipped: 0, pending: 0 };
    for (const module of modules) {
      for (const test of module.children.allTests()) count[test.result().state] += 1;
      for (const suite of [module, ...module.children.allSuites()]) count.failed += suite.errors().length > 0 ? 1 : 0;
    }
    this.#line = `${count.passed} passed, ${count.failed + count.pending} failed, ${count.skipped} skipped\n`;
  }
}
