/**
 * Cases that look like a broken promise and are none. Nothing else is excused: a new line here needs a reason that the documents give too.
 */
export const legal = {
  "lost-with-the-database":
    "the database itself forgot the committed transaction in a fail-over to a replica that had not received it; its events went with it",
  "published-before-the-database-forgot":
    "the event was committed and published, and the fail-over then forgot its transaction: nothing can take a message back",
  "effect-lost-with-the-database":
    "the consumer had applied the event, and a fail-over of its own database then forgot the effect; the broker had been told that it is done",
  discarded: "an operator gave the event up; it stays on record as DISCARDED",
  dead: "the event is visible as DEAD, and waits for an operator",
  "blocked-behind-dead": "the event waits behind a DEAD one of its aggregate, as the policy `block` says",
  "parked-by-the-consumer": "the consumer gave the event up, and its letter is durable",
  "joins-late": "a delayed event joins its aggregate's order when it becomes available",
  "skipped-then-redriven": "the policy `skip` let followers go on when the event died; a redrive publishes it after them",
  "parked-then-copied":
    "the consumer gave the event up, and its letter is on a topic; a further copy of it came after its followers, and its handler succeeded then",
  "parked-then-redriven":
    "the consumer gave the event up, and its followers went on; an operator redrove its letter, which was applied after them",
  "explained-copy": "the copy is one that a fault of the run explains: copies - 1 <= faults x window",
  "unanswered-publish":
    "the broker did not answer the publish within its time, so nobody could know that it has the event: the next attempt was its copy",
  "frozen-before-the-send":
    "the relay's lease ran out between its last look at its clock and the send: whoever is frozen there cannot know, and what it sends are copies",
  // The store cannot be stricter: the replica may have the relay's lanes and an older lease, and a window that was claimed before the fail-over
  // is sent without another look at the store. With a `take` that gives nothing without a lease, seeds 704 and 1044 still come to this.
  "lease-forgotten-by-the-database":
    "a fail-over forgot the relay's lease, so another relay took its lanes before the look behind its next renewal told it so; what it sent meanwhile are copies",
  "harmed-by-a-fault": "the event was under way while something that harms everything was broken",
} as const;

export type Legal = keyof typeof legal;
