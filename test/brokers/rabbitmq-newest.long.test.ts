import { onlyOn } from "./rabbitmq.ts";

// Every suite, on the newest version that Debian has.
onlyOn("rabbitmqNewest");
await import("./rabbitmq.slow.test.ts");
await import("./rabbitmq-among.slow.test.ts");
await import("./rabbitmq-broker.slow.test.ts");
await import("./rabbitmq-hostile.slow.test.ts");
await import("./rabbitmq-path.slow.test.ts");
await import("./rabbitmq-redrive.slow.test.ts");
await import("./rabbitmq-secure.slow.test.ts");
