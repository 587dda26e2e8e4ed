export function postgresBinaries(version: 14 | 15 | 18): Promise<string>;
export function pgbouncerBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function kafkaBinaries(): Promise<{ java: string; version: string; classes: string }>;
export function mariadbBinaries(): Promise<{ server: string; install: string; base: string; env: Record<string, string> }>;
export function natsBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function rabbitmqBinaries(own?: string): Promise<{ server: string; control: string; epmd: string; env: Record<string, string> }>;
export function redisBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function straceBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function passable(path: string): boolean;
