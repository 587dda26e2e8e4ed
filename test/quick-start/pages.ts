import { readFileSync } from "node:fs";
import { stacks, type Broker, type Stack } from "./stacks.ts";

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string };
const tarball = `waybill-${version}.tgz`;

/** The quick starts by their path: one text, so that no page lacks what another has. */
export const quickStarts = (): Readonly<Record<string, string>> =>
  Object.fromEntries(stacks.map((stack) => [`docs/${stack.page}`, pageOf(stack)]));

function pageOf({ page, broker, library, others: more = [] }: Stack): string {
  const others = stacks.filter((stack) => stack.page !== page).map((stack) => `[${titleOf(stack)}](${stack.page})`);
  const end = library.title === "Prisma" ? "await prisma.$disconnect();" : "await pool.end();";
  const shift = library.prepare === "" ? 0 : 1;
  const step = (number: number): number => number + shift;
  return `# Quick start: PostgreSQL, ${library.title} and ${broker.title}

You build three processes: a service that saves orders, a relay that publishes their events, and a subscriber that makes a parcel for each order.
Then you kill them while they work, and count: as many parcels as orders. It takes about ten minutes.

A test follows this page to the letter in an empty folder. Other stacks: ${others.join(", ")}, or [SQLite without a server](quick-start.md).
${otherBrokers(broker, more)}
## 1. Servers

You need Node 20.19 or later. This compose file starts the two servers; skip it if you have servers already.

\`\`\`yaml compose.yaml
services:
  postgres:
    image: postgres:18
    environment: { POSTGRES_PASSWORD: waybill }
    ports: ["127.0.0.1:5432:5432"]
    healthcheck: { test: ["CMD", "pg_isready", "-U", "postgres", "-h", "127.0.0.1"], interval: 2s, retries: 20 }
${broker.compose}
\`\`\`

\`\`\`sh
docker compose up --wait
\`\`\`

Every terminal that you open needs these two variables:

\`\`\`sh
export DATABASE_URL=postgres://postgres:waybill@localhost:5432/postgres
export BROKER_URL=${broker.url}
\`\`\`

## 2. A project

Waybill ${version} is not on npm yet. Run \`npm pack --ignore-scripts=false\` in a clone of the repository, and copy \`${tarball}\` into an empty folder.
There:

\`\`\`sh
npm init --yes
npm pkg set type=module
npm install ./${tarball} ${library.packages} ${broker.client}
npm install --save-dev tsx@4 ${library.tools} @types/node@20
\`\`\`

${broker.node}. On Node 22.18 and later you can leave \`tsx\` out, and write \`node orders.ts\` where this page writes
\`node --import tsx orders.ts\`. [TypeScript and Node](typescript.md) has the compiler's settings.

## 3. Tables and the topic

Commands read the two URLs from this file:

\`\`\`js waybill.config.mjs
export default {
  store: process.env.DATABASE_URL,
  broker: process.env.BROKER_URL,
  topics: ["order.events"],
};
\`\`\`

\`\`\`sh
npx waybill migrate --consumers shipping
\`\`\`

This adds the tables \`outbox\` and \`inbox\` and some that begin with \`waybill_\` next to your own. On the broker it creates the topic
\`order.events\`, with a place for the consumer \`shipping\` where the broker needs one. [Migration tools](migration-tools.md) shows how to put the
tables into your own migrations instead.

${library.prepare}## ${step(4)}. The service adds events where it writes

\`\`\`ts orders.ts
${library.orders}
let open = true;
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => (open = false));
console.log(\`orders: process \${process.pid}\`);
while (open) {
  console.log(\`order \${await placeOrder(4200)} placed\`);
  await sleep(100);
}
${end}
\`\`\`

The event is a row of your own transaction. It is there if the order is, and gone if the order is rolled back. In a web service, \`placeOrder\` is what
a request calls; the loop stands for the requests.

## ${step(5)}. The subscriber applies each event once

\`\`\`ts shipping.ts
${library.shipping.replaceAll("BROKER(", `${broker.factory}(`).replaceAll("{ BROKER }", `{ ${broker.factory} }`).replaceAll("waybill/BROKER", `waybill/${broker.factory}`)}
await shipping.start();

async function stop(): Promise<void> {
  await shipping.drain(); // takes no more events, finishes those in hand
  ${end}
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void stop());
console.log(\`shipping: process \${process.pid}\`);
\`\`\`

What the handler writes through \`tx\` commits together with the mark that this event is done. So an event that the broker delivers twice has one
effect. ${library.explained}

Here both services share one database. Yours have one each: give \`shipping.ts\` a URL of its own, and run \`npx waybill migrate --store\` with it.

## ${step(6)}. Run it

\`\`\`sh
# terminal 1: the relay
npx waybill relay
\`\`\`

\`\`\`sh
# terminal 2: the subscriber
node --import tsx shipping.ts
\`\`\`

\`\`\`sh
# terminal 3: the service
node --import tsx orders.ts
\`\`\`

Terminal 3 prints an order every tenth of a second, and terminal 2 prints a parcel for each.

## ${step(7)}. Break it

Each of the three prints the number of its process when it starts. Kill any of them with \`kill -9\` and that number while the others work, and start it
again with the same command. (\`npx\` runs the relay in a process of its own. A kill of \`npx\` leaves the relay running.) Kill the service in the middle
of an order: the order and its event are both there, or neither is. Kill the relay or the subscriber: the next one waits up to ten seconds until the
lease of the dead process expires, then continues.

Now press Ctrl-C in terminal 3, wait until terminal 2 is quiet, and count:

\`\`\`ts count.ts
import pg from "pg";

const client = new pg.Client({ connectionString: process.env["DATABASE_URL"] });
await client.connect();
for (const table of ["orders", "outbox", "parcels"]) {
  const { rows } = await client.query(\`SELECT count(*) FROM \${table}\`);
  console.log(table, rows[0].count);
}
await client.end();
\`\`\`

\`\`\`sh
node --import tsx count.ts
\`\`\`

The three numbers are equal. A doubled effect would be a second parcel, since nothing else keeps \`parcels\` from having two rows for one order.

## ${step(8)}. Look inside

\`\`\`sh
npx waybill status
npx waybill events list --limit 3
npx waybill dead list
npx waybill dead list --consumer shipping
\`\`\`

\`status\` shows how many events wait, and for what. \`events list\` shows the newest events with their states; all of them are \`PUBLISHED\` by now.
\`dead list\` shows events that the relay has given up on, such as one that is too large for the broker: there are none. An event that your handler
refuses five times becomes a letter in the subscriber's database, and \`dead list --consumer\` shows those. [The command line](cli.md#dead) says how to
send both kinds again.

## ${step(9)}. Stop it

Press Ctrl-C in each terminal. A service manager sends SIGTERM, which does the same:

- the relay claims nothing new, settles what it is publishing, hands its lanes over, and exits with 0;
- \`shipping.drain()\` finishes the events in hand, acknowledges them, and lets the broker have the rest back;
- your own pool stays yours: \`${end.replace("await ", "").replace(";", "")}\` closes it, and the process ends.

A stop like this doubles nothing. After \`kill -9\` some events are delivered twice, and the inbox applies each once.

## From here

- [${broker.title}](${broker.page}) and [PostgreSQL](postgres.md): settings, rights, and what is promised on them
- [The event catalogue](catalogue.md): typed and checked payloads from the service to the handler
- [Adding Waybill to a service that publishes already](adopting.md), [deploying](deploying.md), [observing](observing.md)
- [Testing your own code](testing.md), and [what is promised](promises.md)
`;
}

/** The places where a page names its broker. Who uses another one writes the words of its row there. */
const wordsOf = ({ client, url, factory }: Broker): readonly string[] => [
  ...[client, url],
  ...[`import { ${factory} } from "waybill/${factory}";`, `source: ${factory}(`],
];

function otherBrokers(broker: Broker, others: readonly Broker[]): string {
  if (others.length === 0) return "";
  const pageOn = (of: Broker): string => stacks.find((stack) => stack.broker === of && stack.library.title === "Drizzle")!.page;
  const row = (of: Broker): string =>
    `| [${of.title}](${pageOn(of)}#1-servers) | ${wordsOf(of)
      .map((word) => `\`${word}\``)
      .join(" | ")} |`;
  return `
For another broker than ${broker.title}, write the words of its row in place of ${broker.title}'s. The link has its service for the compose file. The test
follows this page with each of them.

| broker | package | URL | import in \`shipping.ts\` | source in \`shipping.ts\` |
|---|---|---|---|---|
${[broker, ...others].map(row).join("\n")}
`;
}

export const titleOf = ({ broker, library }: Stack): string =>
  library.title === "Prisma" ? `${broker.title} with Prisma` : `${broker.title} with Drizzle`;
