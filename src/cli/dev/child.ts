import { systemClock } from "../../core/clock.ts";
import { asError, isWaybillError } from "../../core/errors.ts";
import { endWithParent, serve } from "../child.ts";
import type { Job, Report, Reporter } from "./jobs.ts";
import { play } from "./roles.ts";

/** The program of every process of the shop but the first; see crew.ts, which starts it. */

const tellEveryMs = 150;

function send(report: Report): void {
  if (process.connected) process.send?.(report, undefined, undefined, () => undefined);
}

function reporter(): Reporter {
  let what = "";
  let done = 0;
  let waiting = false;
  const later = async (): Promise<void> => {
    await systemClock.sleep(tellEveryMs);
    waiting = false;
    send({ type: "did", what, done });
  };
  return {
    did(now, more) {
      what = now;
      done += more;
      if (waiting) return;
      waiting = true;
      void later();
    },
    path: (event) => send({ type: "path", event }),
  };
}

function failed(error: unknown): void {
  const report: Report = { type: "failed", code: isWaybillError(error) ? error.code : null, message: asError(error).message };
  if (!process.connected) process.exit(1);
  process.send!(report, undefined, undefined, () => process.exit(1));
}

async function main(job: Job): Promise<void> {
  endWithParent();
  await serve(() => play(job, reporter()), { ready: ({ port }) => send({ type: "ready", port }), failed });
}

if (process.send === undefined) {
  process.stderr.write("waybill: this program is a part of waybill dev, which starts it by itself\n");
  process.exitCode = 2;
} else {
  main(JSON.parse(process.argv[2] ?? "null") as Job).catch(failed);
}
