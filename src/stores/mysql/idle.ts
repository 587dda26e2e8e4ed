/** How long a transaction of ours waits for its next statement: a process that is frozen in one must not keep its locks. */
const idleSeconds = 10;

/** MariaDB ends sessions that are idle within a transaction; MySQL ends idle ones of any kind. */
const settingsOf = (mariadb: boolean): readonly string[] =>
  mariadb ? ["idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout"] : ["wait_timeout"];

/** Two lists for SET: one remembers what the session had and limits it, the other puts that back. */
export function idleSettings(mariadb: boolean, seconds = idleSeconds): { readonly limit: string; readonly restore: string } {
  const settings = settingsOf(mariadb);
  const kept = settings.map((name) => `@waybill_${name} = @@session.${name}`);
  return {
    limit: [...kept, ...settings.map((name) => `SESSION ${name} = ${seconds}`)].join(", "),
    restore: settings.map((name) => `SESSION ${name} = @waybill_${name}`).join(", "),
  };
}
