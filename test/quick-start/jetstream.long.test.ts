import { testQuickStart } from "./servers.ts";
import { stacks } from "./stacks.ts";

await testQuickStart(stacks.find(({ page }) => page === "quick-start-jetstream.md")!);
