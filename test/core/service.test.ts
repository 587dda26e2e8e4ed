import { describe, expect, test } from "vitest";
import { systemClock, turn } from "../../src/core/clock.ts";
import { seededRandom } from "../../src/core/random.ts";
import { createService, type ServiceRun } from "../../src/core/service.ts";
import { withDeadline } from "../../src/core/time.ts";

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", () => resolve())));
const untilDrained = async ({ draining, ready }: ServiceRun): Promise<void> => {
  ready();
  await aborted(draining);
};
const stoppedError = expect.objectContaining({ code: "STOPPED" }) as Error;

describe("a service", () => {
  test("is started when its body says that it is ready, and not before", async () => {
    let ready: () => void = () => undefined;
    const service = createService((run) => {
      ready = run.ready;
      return aborted(run.draining);
    });
    let started = false;
    const start = service.start().then(() => (started = true));
    await turn();
    expect(started).toBe(false);
    ready();
    await start;
    await service.drain();
  });

  test("runs its body once however often it is started", async () => {
    let bodies = 0;
    const service = createService((run) => {
      bodies += 1;
      return untilDrained(run);
    });
    await Promise.all([service.start(), service.start(), service.start()]);
    await service.start();
    await service.stop();
    await service.start();
    expect(bodies).toBe(1);
  });

  test("cannot become ready: start and stopped reject with the reason, drain and stop do not", async () => {
    const service = createService(() => Promise.reject(new Error("no database")));
    await expect(service.start()).rejects.toThrow("no database");
    await expect(service.stopped).rejects.toThrow("no database");
    await service.drain();
    await service.stop();
  });

  test("fails after it was ready: start has resolved, stopped rejects", async () => {
    const service = createService(async ({ ready }) => {
      ready();
      await turn();
      throw new Error("later");
    });
    await service.start();
    await expect(service.stopped).rejects.toThrow("later");
    await service.drain();
  });

  test.each([
    ["an error", new Error("at once")],
    ["undefined", undefined],
  ])("ends when its body throws %s before it returns a promise", async (_, reason: unknown) => {
    const service = createService(() => {
      throw reason;
    });
    await expect(service.start()).rejects.toBe(reason);
    await expect(service.stopped).rejects.toBe(reason);
    await service.drain();
  });

  test("may be stopped by its own body before that has returned", async () => {
    let bodies = 0;
    const done: string[] = [];
    const service = createService(async (run) => {
      bodies += 1;
      void service.start();
      void service.stop().then(() => done.push("stopped"));
      await aborted(run.stopping);
      await turn();
      done.push("body");
    });
    await service.start();
    await service.stopped;
    await turn();
    expect(bodies).toBe(1);
    expect(done).toEqual(["body", "stopped"]);
  });

  test("finishes what it holds when it is drained, and drops it when it is stopped", async () => {
    const ends: string[] = [];
    const make = () =>
      createService(async ({ draining, stopping, ready }) => {
        ready();
        await aborted(draining);
        for (let i = 0; i < 5 && !stopping.aborted; i++) await turn();
        ends.push(stopping.aborted ? "dropped" : "finished");
      });
    const [drained, stopped, both] = [make(), make(), make()];
    await Promise.all([drained.start(), stopped.start(), both.start()]);
    await drained.drain();
    await stopped.stop();
    const draining = both.drain();
    await both.stop();
    await draining;
    expect(ends).toEqual(["finished", "dropped", "dropped"]);
  });

  test("that never started is stopped at once, and cannot be started any more", async () => {
    for (const end of ["drain", "stop"] as const) {
      const service = createService(untilDrained);
      await service[end]();
      await service.stopped;
      await expect(service.start()).rejects.toThrow(stoppedError);
    }
  });

  test("is drained at the end of its `await using` block", async () => {
    let finished = false;
    const service = createService(async (run) => {
      await untilDrained(run);
      await turn();
      finished = true;
    });
    await service.start();
    await service[Symbol.asyncDispose]();
    expect(finished).toBe(true);
  });

  test("may have many parts that listen to its signals", async () => {
    const warnings: Error[] = [];
    const listen = (warning: Error): void => void warnings.push(warning);
    process.on("warning", listen);
    const service = createService(async ({ draining, stopping, ready }) => {
      const parts = Array.from({ length: 30 }, () => [aborted(draining), withDeadline(systemClock, 60_000, stopping, aborted)]);
      ready();
      await aborted(draining);
      await Promise.all(parts.flat());
    });
    await service.start();
    await service.stop();
    await turn();
    process.off("warning", listen);
    expect(warnings).toEqual([]);
  });

  test("whose failure nobody awaits does not end the process", async () => {
    const unhandled: unknown[] = [];
    const listen = (reason: unknown): void => void unhandled.push(reason);
    process.on("unhandledRejection", listen);
    void createService(() => Promise.reject(new Error("nobody listens"))).start();
    for (let i = 0; i < 3; i++) await turn();
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
  });
});

describe("start, drain and stop in any order, ten callers at once", () => {
  test.each(Array.from({ length: 50 }, (_, seed) => seed))("seed %i", async (seed) => {
    const random = seededRandom(seed);
    const pause = async (most: number): Promise<void> => {
      for (let left = Math.floor(random.next() * (most + 1)); left > 0; left--) await turn();
    };
    const fails = random.next() < 0.2;
    let bodies = 0;
    let ended = false;
    let starting = false;
    const service = createService(async ({ draining, stopping, ready }) => {
      bodies += 1;
      await pause(2);
      ready();
      await aborted(draining);
      for (let i = 0; i < 3 && !stopping.aborted; i++) await turn();
      ended = true;
      if (fails) throw new Error("in the end");
    });
    const caller = async (): Promise<void> => {
      for (let call = 0; call < 5; call++) {
        await pause(3);
        const which = random.next();
        if (which < 0.4) {
          starting = true;
          await service.start().catch((error: unknown) => expect(error).toEqual(stoppedError));
        } else {
          await (which < 0.7 ? service.drain() : service.stop());
          expect(ended).toBe(bodies === 1);
        }
      }
    };
    await Promise.all([...Array.from({ length: 10 }, caller), pause(20).then(() => service.drain())]);
    expect(bodies).toBeLessThanOrEqual(starting ? 1 : 0);
    expect(ended).toBe(bodies === 1);
    if (fails && bodies === 1) await expect(service.stopped).rejects.toThrow("in the end");
    else await service.stopped;
    if (bodies === 0) await expect(service.start()).rejects.toThrow(stoppedError);
  });
});
