export function postgresBinaries(version: 14 | 15 | 18): Promise<string>;
export function pgbouncerBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function mariadbBinaries(): Promise<{ server: string; install: string; base: string; env: Record<string, string> }>;
export function natsBinary(): Promise<string>;
export function redisBinary(): Promise<{ command: string; env: Record<string, string> }>;
export function passable(path: string): boolean;
