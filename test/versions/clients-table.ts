import { nodeOf } from "../../scripts/newest-node.mjs";
import { inOneVersion } from "./clients.ts";
import type { VersionRow } from "./table.ts";

interface Client {
  readonly name: string;
  /** All in one version; the first is the peer dependency. */
  readonly packages: readonly string[];
  /** The oldest version that these tests pass with, where docs/versions.md has its row; elsewhere the oldest that is to be tried. */
  readonly oldest: string;
  /** Where Waybill refuses what is newer. */
  readonly newest?: string;
  /** The newest runs on this line of Node, where it needs a later one than Waybill. */
  readonly newestOn?: number;
  /** Drivers below it. */
  readonly beside?: readonly string[];
  readonly files: readonly string[];
  /** Only tests with such a name. */
  readonly only?: string;
}

const slow = (names: string): readonly string[] => names.split(" ").map((name) => `test/${name}.slow.test.ts`);
const handles = slow("handles/postgres handles/mariadb handles/sqlite");
const drivers = ["pg", "mysql2", "libsql"];

const clients: readonly Client[] = [
  { name: "pg", packages: ["pg"], oldest: "8.11.6", files: slow("handles/postgres stores/postgres stores/postgres-order") },
  { name: "postgres", packages: ["postgres"], oldest: "3.0.0", files: slow("handles/postgres"), only: "postgres\\.js" },
  { name: "mysql2", packages: ["mysql2"], oldest: "2.0.0", files: slow("handles/mariadb stores/mysql stores/mysql-order") },
  { name: "libsql", packages: ["libsql"], oldest: "0.4.0", files: ["test/stores/sqlite.test.ts", "test/stores/sqlite-file.test.ts"] },
  { name: "Drizzle", packages: ["drizzle-orm"], oldest: "0.36.0", beside: ["pg", "postgres", "mysql2", "@libsql/client"], files: handles },
  { name: "Knex", packages: ["knex"], oldest: "1.0.1", beside: drivers, files: handles },
  { name: "Kysely", packages: ["kysely"], oldest: "0.28.11", newestOn: 24, beside: drivers, files: handles },
  {
    name: "MikroORM",
    packages: ["core", "postgresql", "mariadb", "libsql"].map((each) => `@mikro-orm/${each}`),
    // The oldest that the registry of these runs has of all four.
    ...{ oldest: "6.4.16", newest: "6.6.16", files: handles },
  },
  {
    name: "Prisma",
    packages: ["@prisma/client", "prisma", ...["pg", "mariadb", "libsql"].map((each) => `@prisma/adapter-${each}`)],
    ...{ oldest: "7.0.0", files: handles },
  },
  { name: "Sequelize", packages: ["sequelize"], oldest: "6.1.0", beside: drivers, files: handles },
  { name: "TypeORM", packages: ["typeorm"], oldest: "0.3.0", beside: [...drivers, "reflect-metadata"], files: handles },
  {
    name: "amqplib",
    packages: ["amqplib"],
    oldest: "0.10.9",
    files: slow("brokers/rabbitmq brokers/rabbitmq-path"),
    only: "^(?!.*on rabbitmq4)",
  },
  {
    name: "@nats-io",
    packages: ["@nats-io/transport-node", "@nats-io/jetstream"],
    ...{ oldest: "3.0.0", files: slow("brokers/nats brokers/nats-path"), only: "\\(2\\.9\\)" },
  },
  {
    name: "@platformatic/kafka",
    packages: ["@platformatic/kafka"],
    ...{ oldest: "1.35.0", newestOn: 24, files: slow("brokers/kafka brokers/kafka-path") },
  },
  { name: "ioredis", packages: ["ioredis"], oldest: "5.3.2", files: slow("brokers/redis brokers/redis-path") },
];

/** They are told, with the reason. */
const notHere: readonly VersionRow[] = Object.entries({
  "better-sqlite3, oldest": "before 13 it is compiled when it is installed, or downloaded from elsewhere than npm",
  "better-sqlite3, newest": "it needs Node 22, on which the tests take node:sqlite",
}).map(([name, why]) => ({ name, start: () => Promise.reject(new Error(why)), files: [] }));

/** Two rows for each client: the oldest version that Waybill works with, and the newest that npm has on the day of the run. */
export const clientRows: readonly VersionRow[] = [...clients.flatMap(rowsOf), ...notHere];

function rowsOf({ name, packages, oldest, newest = "latest", newestOn, beside = [], files, only }: Client): readonly VersionRow[] {
  const shared = { beside, files, ...(only === undefined && files === handles ? { only: name } : { only }) };
  const node = newestOn === undefined ? {} : { node: { line: newestOn, find: () => nodeOf(newestOn) } };
  return [
    { name: `${name}, oldest`, clients: inOneVersion(packages, oldest), ...shared },
    { name: `${name}, newest`, clients: inOneVersion(packages, newest), ...node, ...shared },
  ];
}
