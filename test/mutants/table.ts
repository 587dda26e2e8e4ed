import type { Letter } from "../evidence/promises.ts";

/** What must find a defect: some tests of a file, or the simulation. */
export type Killer = { readonly tests: string; readonly only: string } | "simulation";

/** A defect that was planted on purpose, as `NAME.patch` beside this file. */
export interface Mutant {
  readonly name: string;
  /** The promise that it breaks, by its letter. Null: no promise, but events cost more or wait longer. */
  readonly promise: Letter | null;
  readonly breaks: string;
  readonly killer: Killer;
}

const mutant = (name: string, promise: Letter | null, breaks: string, killer: Killer): Mutant => ({ name, promise, breaks, killer });
/** `only` is a part of a test's name. */
const tests = (file: string, only: string): Killer => ({ tests: `test/${file}.test.ts`, only });

export const mutants: readonly Mutant[] = [
  mutant(
    "id-cursor",
    "L",
    "PostgreSQL: a scan begins behind the last number that was drawn, whoever is still writing below it",
    tests("stores/postgres-hazards.slow", "and a row that commits late"),
  ),
  mutant(
    "skip-locked",
    "O",
    "PostgreSQL: relays claim from all lanes that nobody has locked, not from their own",
    tests("stores/postgres-order.slow", "ten writers on hot aggregates"),
  ),
  mutant("settle-before-ack", "L", "the relay settles a window as published, and sends it then", "simulation"),
  mutant(
    "unfenced-settle",
    "O",
    "a settle looks at the event's id only: neither at the lane's owner and epoch, nor at the window",
    "simulation",
  ),
  mutant(
    "postgres-unfenced-settle",
    "O",
    "PostgreSQL: a settle looks at the event's number only: neither at the lane's owner and epoch, nor at the window",
    tests("stores/postgres.slow", "the old owner settles the lanes it still has and no other"),
  ),
  mutant(
    "postgres-settles-share-a-window",
    "D",
    "PostgreSQL: two settles of one window write what the other has settled back into it",
    tests("stores/postgres-hazards.slow", "two settles of one window at once leave nothing of it open"),
  ),
  mutant(
    "postgres-at-once-without-lock",
    "O",
    "PostgreSQL: a claim in one round trip looks at lanes that it has not locked",
    tests("stores/postgres-hazards.slow", "a claim that waited for a settle finds the hold that it made"),
  ),
  mutant(
    "postgres-at-once-past-a-hold",
    "O",
    "PostgreSQL: a claim in one round trip takes the followers of an event that is held",
    tests("stores/postgres-hazards.slow", "leaves the followers of a held event behind it"),
  ),
  mutant(
    "postgres-at-once-two-snapshots",
    "O",
    "PostgreSQL: a claim moves a floor past an event that is given back while it is under way",
    tests("stores/postgres-hazards.slow", "moves no floor past an event that a settle gives back"),
  ),
  mutant(
    "postgres-at-once-past-delayed",
    "O",
    "PostgreSQL: a claim in one round trip takes what follows a delayed event that has become available",
    tests("stores/postgres-hazards.slow", "takes nothing past a delayed event of its aggregate"),
  ),
  mutant(
    "postgres-at-once-from-a-high-floor",
    "L",
    "PostgreSQL: a claim in one round trip looks at what lies above the highest floor, not above the lowest",
    tests("stores/postgres-hazards.slow", "which goes back to what a settle gives back"),
  ),
  mutant("claim-in-passes", "O", "a claim does not look once more for what was committed between its passes", "simulation"),
  mutant(
    "postgres-claim-in-passes",
    "O",
    "PostgreSQL: a claim does not look once more for what was committed between its scans",
    tests("stores/postgres-claim.slow", "in several statements takes no event past"),
  ),
  mutant(
    "claim-up-to-a-number",
    "O",
    "a claim takes events up to the last number drawn before it began, and trusts that none of a transaction's comes late",
    "simulation",
  ),
  mutant(
    "postgres-claim-up-to-a-number",
    "O",
    "PostgreSQL: a claim takes events up to the last number drawn before it began, and does not look once more",
    tests("stores/postgres-claim.slow", "takes no event past one of the same transaction"),
  ),
  mutant(
    "postgres-available-is-passed",
    "O",
    "PostgreSQL: a claim takes what follows a delayed event that became available after its first look",
    tests("stores/postgres-claim.slow", "takes no event past one of its aggregate that was available when it was added"),
  ),
  mutant(
    "mysql-available-is-passed",
    "O",
    "MariaDB: a claim takes what follows a delayed event that became available after its first look",
    tests("stores/mysql-looks.slow", "order holds when the"),
  ),
  mutant("ack-before-commit", "L", "the subscriber acknowledges a delivery, and applies it then", "simulation"),
  mutant(
    "sqlite-lane-trusted",
    "L",
    "SQLite: a row keeps the lane that plain SQL wrote, also one that no relay owns",
    tests("stores/sqlite", "end DEAD with the cause in words"),
  ),
  mutant(
    "inbox-own-transaction",
    "E",
    "SQLite: the inbox's mark is committed before the handler begins",
    tests("stores/sqlite", "work that fails leaves neither an effect nor a mark"),
  ),
  mutant(
    "ignored-returns",
    "L",
    "RabbitMQ: a message that no queue takes is stored, since the server confirms it",
    tests("brokers/rabbitmq-broker.slow", "a message that no queue takes"),
  ),
  mutant(
    "order-by-next-attempt",
    "O",
    "a failed event waits by itself, in order of the next attempts, and holds nobody back",
    "simulation",
  ),
  mutant(
    "past-a-failure",
    "O",
    "Redis: a batch goes on past a refused message of the same aggregate",
    tests("brokers/redis-answers", "to blame"),
  ),
  mutant("dedupe-on-sequence", "L", "the inbox knows an event by its number, which a fail-over gives out again", "simulation"),
  mutant(
    "purge-by-age",
    "L",
    "a purge deletes what is old, published or not",
    tests("stores/memory", "purge deletes what is published or discarded and old"),
  ),
  mutant(
    "postgres-purge-by-age",
    "L",
    "PostgreSQL: a purge deletes what is old, published or not",
    tests("stores/postgres.slow", "purge deletes what is published or discarded and old"),
  ),
  mutant(
    "order-by-xid",
    "O",
    "PostgreSQL: a scan goes by the transaction's id and then the number",
    tests("stores/postgres-order.slow", "ten writers on hot aggregates"),
  ),
  mutant(
    "renewal-without-progress",
    "L",
    "a relay renews its lease by the clock, though a step of its hangs",
    tests("relay/hanging-release", "a relay whose release never ends"),
  ),
  mutant(
    "dropped-confirms",
    "L",
    "RabbitMQ: what has no confirmation when its channel ends is never answered",
    tests("brokers/rabbitmq-broker.slow", "a message that the server closes the channel for"),
  ),
  mutant("trust-without-end", "O", "the relay sends although its lease may have run out", "simulation"),
  mutant("unknown-is-stored", "L", "a publish that nobody has answered counts as published", "simulation"),
  mutant("unknown-spends-attempts", "I", "events pay with their attempts for a link that breaks", tests("relay/outage.slow", "for a day")),
  mutant(
    "outage-spends-attempts",
    "I",
    "events pay with their attempts for a destination that is away",
    tests("relay/outage.slow", "for one topic only"),
  ),
  mutant(
    "windows-overtake",
    "O",
    "a window that was claimed ahead sends the followers of an event that has failed meanwhile",
    "simulation",
  ),
  mutant(
    "neighbours-to-blame",
    "I",
    "whatever was in a dead relay's window counts as having ended it",
    tests("relay/crash.slow", "is parked after three deaths alone"),
  ),
  mutant(
    "lanes-of-the-living",
    "O",
    "a lane is taken from a relay whose lease has not run out",
    tests("stores/memory", "free lanes are taken, and owned ones are not"),
  ),
  mutant(
    "lane-given-in-use",
    "D",
    "a lane is given away while a claim from it is under way",
    tests("relay/handover", "a lane is not given away"),
  ),
  mutant(
    "settle-without-lock",
    "O",
    "PostgreSQL: a settle looks at the lanes' owners without locking them",
    tests("stores/postgres-hazards.slow", "a settle of published events that waited while its lane was taken"),
  ),
  mutant(
    "floor-past-flight",
    "L",
    "PostgreSQL: a scan begins behind events that were in flight and have come back",
    tests("stores/postgres-hazards.slow", "which goes back to what a settle gives back"),
  ),
  mutant(
    "floor-of-another-epoch",
    "L",
    "MariaDB: a lane that comes back is scanned from where it was left",
    tests("stores/mysql-floors.slow", "a lane that came back"),
  ),
  mutant(
    "mark-not-looked-for",
    "E",
    "SQLite: what a handler did in a transaction of its own counts as done",
    tests("stores/sqlite-file", "that ends the transaction and begins another"),
  ),
  mutant(
    "unfinished-is-seen",
    "E",
    "SQLite: a mark that the handler's own COMMIT left behind counts as done",
    tests("stores/sqlite", "a mark that a handler's statement committed is no success"),
  ),
  mutant(
    "row-ends-its-window",
    "I",
    "SQLite: a row that cannot be carried fails its whole claim",
    tests("stores/sqlite", "end DEAD with the cause in words, and every other event flows"),
  ),
  mutant(
    "seat-not-trusted-for",
    "E",
    "a subscriber goes on although its seat may have run out",
    tests("subscriber/seats", "is trusted for less time"),
  ),
  mutant(
    "batch-applies-the-seen",
    "E",
    "a batch gives its handlers also the events that have a mark already",
    tests("subscriber/batch", "leaves out what was applied before"),
  ),
  mutant(
    "batch-failure-is-done",
    "L",
    "a batch that failed is acknowledged, and not replayed",
    tests("subscriber/batch", "with an event that fails is rolled back"),
  ),
  mutant(
    "batch-replayed-together",
    "I",
    "of a batch that failed, only the first event goes by itself, and the others are tried together again",
    tests("subscriber/batch", "with an event that fails is rolled back"),
  ),
  mutant(
    "batch-one-mark-finished",
    "E",
    "SQLite: of a batch's marks, the first alone is finished and looked for",
    tests("stores/sqlite", "several events are applied together, each once"),
  ),
  mutant(
    "letter-after-ack",
    "L",
    "a dead event is acknowledged, and its letter is written then",
    tests("subscriber/dead-letters", "is acknowledged only once the inbox has it"),
  ),
  mutant(
    "unreadable-is-dropped",
    "V",
    "a message that is no event is acknowledged, and nothing is kept of it",
    tests("subscriber/unreadable", "is parked with its bytes and acknowledged"),
  ),
  mutant(
    "refused-letter-again",
    "I",
    "a letter that its topic refuses for good is tried there for ever",
    tests("subscriber/dead-letters", "goes to the inbox, and the next one is delivered"),
  ),
  mutant(
    "one-event-for-ever",
    "I",
    "an event for which the inbox alone fails is tried for ever",
    tests("subscriber/unreadable", "ends with a letter while others flow"),
  ),
  mutant(
    "session-end-is-spent",
    "I",
    "the database's end of a handler's session counts as the event's own failure",
    tests("subscriber/failures", "are not spent by a session that the database ended"),
  ),
  mutant(
    "statements-after-rollback",
    "E",
    "a handler's handle takes statements after the handler has ended its transaction",
    tests("stores/sqlite-file", "takes no statement after a ROLLBACK"),
  ),
  mutant(
    "late-statements",
    "E",
    "a query that a handler has built runs after the handler's transaction has ended",
    tests("handles/late.slow", "that were built before a ROLLBACK of the handler's own"),
  ),
  mutant(
    "marks-forgotten-early",
    "E",
    "marks are forgotten by age, although the broker still has messages of their time",
    tests("subscriber/forgetting", "keeps a mark for as long as the broker may deliver"),
  ),
  mutant(
    "nats-status-line-trusted",
    "I",
    "NATS: a stored message with a status line is taken for an answer of the server",
    tests("brokers/nats-hostile.slow", "is delivered as unreadable, with its bytes"),
  ),
  mutant(
    "redis-reads-past-its-bytes",
    "I",
    "Redis: entries are read by count, however large they are",
    tests("brokers/redis-source.slow", "no more bytes are unacknowledged than were asked for"),
  ),
  mutant("commit-past-a-gap", "L", "an acknowledgement commits what is before it too, acknowledged or not", tests("core/ack-ledger", "")),
  mutant(
    "kafka-lost-goes-again",
    "D",
    "Kafka: a batch that nobody has answered is sent again",
    tests("brokers/kafka-answers", "or of which nobody knows"),
  ),
  mutant(
    "kafka-producer-reused",
    "L",
    "Kafka: a producer goes on after an answer was lost, with a number that the broker has",
    tests("brokers/kafka-lost.slow", "whose answer was lost is stored"),
  ),
  mutant(
    "kafka-lost-bytes-reused",
    "L",
    "Kafka: the bytes of a batch that nobody has answered are overwritten with the next one's while they may be on their way",
    tests("brokers/kafka-answers", "keeps its bytes"),
  ),
  mutant(
    "kafka-number-stands-still",
    "L",
    "Kafka: a producer gives the next batch the number of the last one, and the broker takes it for a copy",
    tests("brokers/kafka-producer", "numbers the messages of a partition"),
  ),
  mutant(
    "kafka-past-a-full-batch",
    "O",
    "Kafka: a message that fits into a batch goes before a larger one of its aggregate that does not",
    tests("brokers/kafka-flights", "behind a message that has to wait"),
  ),
  mutant("redis-refusal-is-stored", "L", "Redis: no entry id counts as stored", tests("brokers/redis-answers", "no entry id means")),
  mutant(
    "rabbitmq-numbers-shifted",
    "L",
    "RabbitMQ: a message that could not be sent takes a number, and the confirmations behind it count for others",
    tests("brokers/rabbitmq-outgoing", "takes no number"),
  ),
  mutant(
    "redis-copies-not-awaited",
    "L",
    "Redis: what the primary has counts as stored, though nobody has said yet how many replicas have it",
    tests("brokers/redis-answers", "what is called off before they are counted"),
  ),
  mutant(
    "redis-answer-shifted",
    "L",
    "Redis: answers count by the place of a message in the batch, though one before it was not sent",
    tests("brokers/redis-answers", "each answer is its own message's"),
  ),
  mutant(
    "nats-any-answer",
    "L",
    "NATS: whoever answers on the subject is taken for the stream",
    tests("brokers/nats-parts", "is the stream's own"),
  ),
  mutant(
    "nats-answer-by-turn",
    "L",
    "NATS: an acknowledgement counts for the first message that has none, and not for the one that its number names",
    tests("brokers/nats-parts", "each goes to its own place"),
  ),
  mutant(
    "nats-running-misses-untold",
    "V",
    "NATS: what a stream of several subjects removes unread while a subscriber runs is not told with the next message",
    tests("brokers/nats-hostile.slow", "is told when the next message comes"),
  ),
  mutant(
    "nats-done-counts-as-missed",
    "V",
    "NATS: what was acknowledged beyond a message that waits is told as missed when it is removed",
    tests("brokers/nats-hostile.slow", "is not told as missed when it is removed"),
  ),
  mutant(
    "failed-work-commits",
    "P",
    "SQLite: what a transaction's work did before it failed is committed",
    tests("stores/sqlite", "a transaction that fails leaves nothing"),
  ),
  mutant(
    "deaths-untold",
    "V",
    "nobody is told of an event that is given up and holds its followers",
    tests("relay/failing.slow", "and is DEAD at its fifth failure"),
  ),
  mutant(
    "blocked-not-counted",
    "V",
    "status does not count what waits behind a failed event",
    tests("stores/memory", "status tells what is stuck and why"),
  ),
  mutant(
    "publish-without-time",
    "D",
    "a publish is begun as long as the lease is trusted, however soon it would have to be called off",
    tests("relay/hurry", "begins no publish that it would have to call off"),
  ),
  mutant(
    "window-on-one-deadline",
    "D",
    "a run of round trips to a healthy broker has one deadline, and is called off when it is over",
    tests("relay/hot", "holds causes no copy"),
  ),
  mutant(
    "trips-forget-the-time",
    "D",
    "as many round trips as fit at all share one deadline, however long each takes",
    tests("relay/hot", "one by one while it is slow"),
  ),
  mutant(
    "one-trip-a-flight",
    null,
    "each event of a hot aggregate is a publish of its own, however soon the broker answers",
    tests("relay/hot", "several to a call"),
  ),
  mutant(
    "called-off-goes-on",
    "D",
    "a publish that was called off sends the next events of its aggregates all the same",
    tests("brokers/flights", "once the publish is called off"),
  ),
  mutant(
    "slow-runs-go-on",
    "D",
    "a publish to a broker that has become slow sends on until its deadline, and may be called off",
    tests("brokers/flights", "once a publish has taken a second"),
  ),
  mutant(
    "hot-goes-first",
    "I",
    "where hot aggregates have all flights of a topic, others wait for as long as there are any",
    tests("relay/order", "the next one is for the others that wait"),
  ),
  mutant(
    "silence-is-missed-behind-a-long-answer",
    "I",
    "a server that has fallen silent is noticed only when an older answer is due, which may take longer",
    tests("brokers/silence", "keeps no other from being noticed"),
  ),
  mutant(
    "hot-with-its-topic",
    "I",
    "an aggregate that needs many round trips waits for the answers to everything that its topic sends",
    tests("relay/order", "goes apart"),
  ),
  mutant(
    "followers-of-a-stop-go",
    "O",
    "the relay sends what it holds of an aggregate behind an event that was not stored",
    tests("relay/order", "all followers go back"),
  ),
  mutant("flights-of-one-aggregate", "O", "the relay sends an event while the one before it is still at the broker", "simulation"),
  mutant(
    "hot-fills-the-room",
    "I",
    "the backlog of one aggregate is claimed until there is no room for others",
    tests("relay/hot", "does not take the room of the others"),
  ),
  mutant(
    "window-never-widens",
    null,
    "windows keep their first width, however large the backlog is",
    tests("relay/wake", "windows widen while there is a backlog"),
  ),
  mutant(
    "window-stays-wide",
    "D",
    "windows stay as wide as the last backlog made them, and a fault may send all their events twice",
    tests("relay/wake", "windows widen while there is a backlog"),
  ),
  mutant("hint-is-a-burst", null, "a hint that finds nothing is followed by further claims", tests("relay/wake", "a hint is one claim")),
  mutant(
    "settles-one-by-one",
    null,
    "what is concluded is settled at once, though more of its window is under way",
    tests("relay/hot", "one after the other are settled several at a time"),
  ),
  mutant(
    "long-run-ends-at-once",
    null,
    "when events come steadily, one look that finds nothing makes the next event wait for a poll",
    tests("relay/wake", "a long run of windows outlasts one look"),
  ),
  mutant(
    "hint-before-commit",
    null,
    "the outbox hints when an event is added, before its transaction is committed",
    tests("outbox/outbox", "wakes the relay when the transaction has ended"),
  ),
  mutant(
    "postgres-hint-at-any-answer",
    null,
    "PostgreSQL: the outbox hints at the next answer to the client, before its transaction is committed",
    tests("stores/postgres-listen.slow", "is no hint before its COMMIT"),
  ),
  mutant(
    "postgres-notify-each-commit",
    null,
    "PostgreSQL: every commit sends a NOTIFY",
    tests("stores/postgres-notify", "once in 20 ms after further ones"),
  ),
  mutant(
    "drain-publishes-all",
    "D",
    "a drain publishes every window that was claimed, however long that takes, and gives none back",
    tests("relay/drain", "gives back the windows that wait behind it"),
  ),
  mutant(
    "seat-left-early",
    "O",
    "a subscriber that is drained leaves its seat while a handler is at work, when another event has failed",
    tests("subscriber/seats", "is kept by a drain until what is being handled is acknowledged"),
  ),
  mutant(
    "assignment-not-heeded",
    "O",
    "a subscriber goes on with a failed event whose partition the broker has given to another process",
    tests("subscriber/assignments", "ends the rest of a failed event at once"),
  ),
  mutant(
    "trial-ended-early",
    "I",
    "a topic is well again while the event that it is tried with is on its way",
    tests("relay/trials", "is on trial with an event from elsewhere stays so"),
  ),
  mutant(
    "corruption-is-spent",
    "L",
    "an event is given up because the subscriber's database is corrupt",
    tests("subscriber/failures", " inside the handler"),
  ),
  mutant(
    "key-forgotten-meanwhile",
    "L",
    "PostgreSQL: an event whose key was forgotten while it was added is called added, and is not there",
    tests("stores/postgres-keys.slow", "an event is called added exactly when it is there"),
  ),
  mutant(
    "mysql-unfinished-is-seen",
    "E",
    "MariaDB: a mark that a handler's TRUNCATE or DDL committed counts as done",
    tests("stores/mysql-effects.slow", "and fails is an unfinished effect, never a done one"),
  ),
  mutant(
    "postgres-row-ends-its-window",
    "I",
    "PostgreSQL: a row that cannot be carried fails its whole claim",
    tests("stores/postgres.slow", "end DEAD with the cause in words, and every other event flows"),
  ),
  mutant(
    "mysql-row-ends-its-window",
    "I",
    "MariaDB: a row that cannot be carried fails its whole claim",
    tests("stores/mysql.slow", "end DEAD with the cause in words, and every other event flows"),
  ),
  mutant(
    "read-without-end",
    "I",
    "the relay waits for a payload that it reads by itself as long as the store keeps silent",
    tests("relay/unread", "a payload that never arrives"),
  ),
  mutant(
    "nats-status-of-a-message",
    "I",
    "NATS: a status line that a publisher wrote is taken for the server's own answer",
    tests("brokers/nats-hostile.slow", "an event with a status line or an odd header is an event all the same"),
  ),
  mutant(
    "rabbitmq-any-depth",
    "I",
    "RabbitMQ: header tables are read however deep they are",
    tests("brokers/rabbitmq-hostile.slow", "each becomes an unreadable delivery with its bytes"),
  ),
  mutant(
    "kafka-stops-for-ever",
    "I",
    "Kafka: a fetch that stops at the same offset again and again is asked again, and what is there is never set aside",
    tests("brokers/kafka-damage.slow", "a length beyond the file: nothing, and no error"),
  ),
  mutant(
    "unmarkable-is-handled",
    "I",
    "an event whose id the inbox cannot mark is tried all the same",
    tests("subscriber/unreadable", "parks its event: it "),
  ),
  mutant(
    "park-without-mark",
    "O",
    "a letter leaves no mark, and a late copy of its event is applied behind its followers",
    tests("stores/memory", "a letter marks its event: a late copy is not applied behind its followers"),
  ),
  mutant(
    "postgres-finishes-any-mark",
    "E",
    "PostgreSQL: a mark is finished by the transaction that is there when the handler ends, also when it is not the one that made it",
    tests("stores/postgres-sessions.slow", "began in place of its own is not committed"),
  ),
  mutant(
    "postgres-park-without-mark",
    "O",
    "PostgreSQL: a letter leaves no mark, and a late copy of its event is applied behind its followers",
    tests("stores/postgres.slow", "a letter marks its event: a late copy is not applied behind its followers"),
  ),
  mutant(
    "mysql-letter-stays",
    "E",
    "MariaDB: the transaction that applies a redriven letter does not delete the letter",
    tests("stores/mysql.slow", "a redriven letter is applied once, and goes away with its effect"),
  ),
  mutant(
    "seat-behind-its-handlers",
    "I",
    "SQLite: a seat is renewed when all handlers that wait for the file are done, and may run out before",
    tests("stores/sqlite-file", "a seat is renewed before the handlers"),
  ),
  mutant(
    "discarded-is-applied",
    "E",
    "SQLite: a letter is applied although an operator has discarded it, or never redrove it",
    tests("stores/sqlite", "a letter that was not redriven, or was discarded, is not applied"),
  ),
  mutant(
    "postgres-letter-stays-redriven",
    "I",
    "PostgreSQL: a redriven letter that fails again stays redriven, and is tried for ever",
    tests("stores/postgres.slow", "a letter that fails again stays one letter, with its new reason"),
  ),
  mutant(
    "mysql-letters-newest-first",
    "O",
    "MariaDB: redriven letters are applied newest first",
    tests("stores/mysql.slow", "in the order in which they were parked"),
  ),
];

export const killerText = (killer: Killer): string =>
  killer === "simulation" ? "the simulation" : killer.only === "" ? killer.tests : `${killer.tests}: ${killer.only}`;

/** The table of docs/mutants.md. */
export function markdown(): string {
  const rows = mutants.map(({ name, breaks, killer }) => `| \`${name}\` | ${breaks} | ${killerText(killer)} |`);
  return ["| mutant | what it breaks | killed by |", "|---|---|---|", ...rows].join("\n");
}
