export { memory, type MemoryDb, type MemoryOptions, type MemoryStore, type MemoryTx } from "./stores/memory/index.ts";
export { memoryBroker, type MemoryBroker, type MemoryBrokerOptions, type Message } from "./brokers/memory/index.ts";
