import assert from "node:assert/strict";
import type { Service } from "../core/service.ts";
import { isWaybillError } from "../core/errors.ts";
import type { Test } from "./harness.ts";

export interface ServiceSuite {
  readonly test: Test;
  /** A service that can start, with nothing to do. */
  create(): Promise<{ readonly service: Service; close(): Promise<void> }>;
}

/** Started twice, stopped twice, stopped before it started, stopped while it starts: all harmless. */
export function serviceSuite(suite: ServiceSuite): void {
  const test = (name: string, body: (service: Service) => Promise<void>): void => {
    suite.test(`service: ${name}`, async () => {
      const { service, close } = await suite.create();
      try {
        await body(service);
      } finally {
        await service.stop();
        await close();
      }
    });
  };

  test("starts, drains and has stopped", async (service) => {
    assert.equal(service.isRunning(), false);
    await service.start();
    assert.equal(service.isRunning(), true);
    const drained = service.drain();
    assert.equal(service.isRunning(), false, "a probe sends nothing more to a service that drains");
    await drained;
    await service.stopped;
    assert.equal(service.isRunning(), false);
  });

  test("starting twice starts once", async (service) => {
    await Promise.all([service.start(), service.start()]);
    await service.start();
    await service.stop();
    await service.stopped;
  });

  test("drain and stop, in any order and number", async (service) => {
    await service.start();
    await Promise.all([service.drain(), service.stop(), service.drain(), service.stop()]);
    await service.stop();
    await service.drain();
    await service.stopped;
  });

  test("stopped before it started, it never starts", async (service) => {
    await service.stop();
    await service.stopped;
    await assert.rejects(service.start(), (error) => isWaybillError(error, "STOPPED"));
  });

  test("stopped while it starts", async (service) => {
    const starting = service.start().catch(() => undefined);
    await service.stop();
    await starting;
    await service.stopped.catch(() => undefined);
  });

  test("disposing drains", async (service) => {
    await service.start();
    await service[Symbol.asyncDispose]();
    await service.stopped;
  });

  suite.test("service: many starts and stops at once", async () => {
    for (let round = 0; round < 10; round++) {
      const { service, close } = await suite.create();
      try {
        const calls = Array.from({ length: 50 }, (_, n) => {
          if (n % 3 === 0) return service.start().catch(() => undefined);
          return n % 3 === 1 ? service.drain() : service.stop();
        });
        await Promise.all(calls);
        await service.stopped.catch(() => undefined);
      } finally {
        await close();
      }
    }
  });
}
