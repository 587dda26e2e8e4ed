import { testQuickStart } from "./servers.ts";
import { stacks } from "./stacks.ts";

// JetStream's has a file of its own, which runs beside this one.
for (const stack of stacks.filter(({ page }) => page !== "quick-start-jetstream.md")) await testQuickStart(stack);
