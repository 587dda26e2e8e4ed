import type { Invariant } from "../../src/proof/judge/verdict.ts";

/** A part of a test's name, and the file that has it. */
interface Held {
  readonly file: string;
  readonly name: string;
}

export type Letter = "L" | "P" | "O" | "E" | "D" | "I" | "V";

export interface Promised {
  readonly letter: Letter;
  readonly name: string;
  /** As the checker judges it. */
  readonly invariants: readonly Invariant[];
  /** The tests that hold it first of all. Many others would fail with them. */
  readonly tests: readonly Held[];
}

const held = (file: string, name: string): Held => ({ file: `${file}.ts`, name });

export const promises: readonly Promised[] = [
  {
    letter: "L",
    name: "no loss",
    invariants: ["no loss", "nothing stuck"],
    tests: [
      held("test/relay/random.slow.test", "no event is lost, each aggregate's first deliveries are in order"),
      held("test/brokers/kit/faults", "killed and started again under load, time after time"),
      held("test/stores/postgres-order.slow.test", "restarted at once twenty times under load"),
      held("test/stores/postgres-hazards.slow.test", "and a row that commits late"),
    ],
  },
  {
    letter: "P",
    name: "no phantom",
    invariants: ["no phantom"],
    tests: [
      held("test/handles/body", "an event goes with the rollback"),
      held("test/handles/body", "an event inside a savepoint goes with its rollback"),
      held("test/stores/sqlite-file.test", "events of an open transaction are not claimed"),
      held("test/outbox/outbox.test", "that fails to insert or to commit rejects"),
    ],
  },
  {
    letter: "O",
    name: "order",
    invariants: ["order", "fencing"],
    tests: [
      held("test/stores/postgres-order.slow.test", "every aggregate arrives as 1, 2, 3"),
      held("test/stores/mysql-order.slow.test", "every aggregate arrives as 1, 2, 3"),
      held("test/relay/failing.slow.test", "redriven, is published first and then its followers in order"),
      held("test/brokers/kit/path", "two relays and two subscribers, killed at random"),
      held("test/subscriber/effects.test", "gives each aggregate its events in order"),
    ],
  },
  {
    letter: "E",
    name: "one effect",
    invariants: ["one effect", "bytes"],
    tests: [
      held("test/subscriber/effects.test", "applies an event once however often it is delivered"),
      held("test/subscriber/effects.test", "acknowledges after the commit and never before"),
      held("test/stores/sqlite-file.test", "that ends the transaction and begins another keeps nothing either"),
      held("test/brokers/kit/path", "a handler gets the bytes, names and headers that went in"),
    ],
  },
  {
    letter: "D",
    name: "few duplicates",
    invariants: ["few duplicates"],
    tests: [
      held("test/faults/sigterm.test", "SIGTERM at any moment: exit code 0, no duplicate"),
      held("test/relay/handover.test", "a lane is not given away while it is not known"),
      held("test/relay/crash.slow.test", "publishes nothing twice and hands the lanes over at once"),
    ],
  },
  {
    letter: "I",
    name: "isolation",
    invariants: ["isolation"],
    tests: [
      held("test/relay/outage.slow.test", "for one topic only, events of the others are published without delay"),
      held("test/brokers/kit/faults", "stops its own aggregate and no other"),
      held("test/subscriber/effects.test", "lets other aggregates go on while one waits"),
    ],
  },
  {
    letter: "V",
    name: "nothing silent",
    invariants: ["conservation", "resources", "no secrets"],
    tests: [
      held("test/brokers/kit/faults", "what follows waits, says for what"),
      held("src/conformance/operator", "status tells what is stuck and why"),
      held("test/relay/hangs.slow.test", "a connect that never answers shows"),
      held("test/stores/postgres-sql.slow.test", "is said in words, without a secret"),
    ],
  },
];
