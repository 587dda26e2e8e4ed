export function postgresBinaries(version: 14 | 15 | 16 | 17 | 18): Promise<string>;
export function pgbouncerBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function kafkaBinaries(): Promise<{ java: string; version: string; classes: string }>;
export function debeziumBinaries(cache: string): Promise<{ java: string; version: string; connect: string; classes: string }>;
export function mariadbBinaries(version?: "11.8"): Promise<{ server: string; install: string; base: string; env: Record<string, string> }>;
export function mysqlBinaries(version?: "8.0"): Promise<{ server: string; base: string }>;
export function natsBinary(version?: "2.10" | "newest"): Promise<{ command: string; env: Record<string, string> }>;
export function rabbitmqBinaries(
  version?: 4 | "newest",
  own?: string,
): Promise<{ server: string; control: string; epmd: string; env: Record<string, string> }>;
export function redisBinary(version?: "redis-8" | "valkey-newest"): Promise<{ command: string; env: Record<string, string> }>;
export function straceBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function passable(path: string): boolean;
export function install(folder: string, name: string, pin: { readonly version: string; readonly integrity: string }): Promise<void>;
export function checkHashes(folder: string, expected: Readonly<Record<string, string>>): void;
