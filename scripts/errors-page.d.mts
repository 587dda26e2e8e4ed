export function errorsPage(table: Readonly<Record<string, { meaning: string; remedy: string; retryable: boolean }>>): string;
