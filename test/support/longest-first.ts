import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Short files that play whole suites. Files begin in the order of their size, so these would come last and be waited for. */
const longest = [
  "compositions/cells-postgres.slow",
  "stores/postgres.slow",
  "cli/verify-brokers.slow",
  "compositions/cells-mariadb.slow",
  "faults/matrix",
  "brokers/kafka-path.slow",
  "brokers/rabbitmq-path.slow",
  "compositions/cells-mysql.slow",
  "compositions/cells-sqlite.slow",
  "path/package.slow",
  "path/newest-node.slow",
  "stores/mysql.slow",
  "brokers/redis-path.slow",
  "brokers/nats-path.slow",
];

const rank = ({ moduleId }: TestSpecification): number => {
  const found = longest.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`));
  return found === -1 ? longest.length : found;
};

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}
