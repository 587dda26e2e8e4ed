import { testQuickStart } from "./servers.ts";
import { stacks } from "./stacks.ts";

// JetStream's is in the slow set.
for (const stack of stacks.filter(({ page }) => page !== "quick-start-jetstream.md")) await testQuickStart(stack);
