import { WaybillError } from "../../core/errors.ts";
import { duration } from "../duration.ts";
import { command, flag } from "../parse.ts";
import { asIs, whole } from "../read.ts";
import { runShop } from "../../dev/run.ts";

const day = 86_400_000;

export const dev = command({
  name: "dev",
  summary:
    "Runs the whole path on this machine: a small shop whose order service, relays and subscribers are processes of their own. Ctrl-C drains: what was begun is delivered, then a summary says whether every promise held. POST /orders takes orders of yours too.",
  flags: {
    faults: flag.switch("stop the broker, plant a poison event, kill processes with SIGKILL, and say so"),
    naive: flag.switch("the same shop with dual writes, no outbox and no inbox: shows what gets lost"),
    "exit-after": flag.value("TIME", "end by itself, with a JSON summary on the last line; such as 10s", duration(1_000, day)),
    "orders-per-second": flag.value("N", "how many orders are placed, each changed 1 to 5 times (default: 10)", whole(1, 1_000)),
    relays: flag.value("N", "how many relays share the work (default: 2)", whole(1, 16)),
    port: flag.value("PORT", "where POST /orders listens, on 127.0.0.1 (default: a free one)", whole(0, 65_535)),
    data: flag.value("FOLDER", "where the databases are, and stay (default: a temporary folder that goes with the run)", asIs),
  },
  examples: [
    "waybill dev",
    "waybill dev --faults",
    "waybill dev --naive --faults --exit-after 10s",
    "waybill dev --exit-after 10s --faults --json",
    `waybill dev --port 8080   # then: curl -H content-type:application/json -d '{"customer_id":"me","items":[{"sku":"tea","quantity":2,"price":7}]}' localhost:8080/orders`,
  ],
  async run(terminal, values) {
    if (values.naive && values.relays !== undefined)
      throw new WaybillError("USAGE", "--relays: the naive shop has none; leave --naive or --relays out");
    await runShop(terminal, {
      ordersPerSecond: values["orders-per-second"] ?? 10,
      relays: values.relays ?? 2,
      port: values.port ?? 0,
      data: values.data,
      faults: values.faults,
      naive: values.naive,
      exitAfterMs: values["exit-after"],
    });
  },
});
