import { onlyOn } from "./rabbitmq.ts";

// The suites that `npm test` runs on the oldest version only.
onlyOn("rabbitmq4");
await import("./rabbitmq-among.slow.test.ts");
await import("./rabbitmq-redrive.slow.test.ts");
await import("./rabbitmq-secure.slow.test.ts");
