/** How long a transaction of ours waits for its next statement: a process that is frozen in one must not keep its locks. */
const idleSeconds = 10;

/** MariaDB ends sessions that are idle within a transaction; MySQL ends idle ones of any kind. */
const settingsOf = (mariadb: boolean): readonly string[] =>
  mariadb ? ["idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout"] : ["wait_timeout"];

/** Remembers what the session had. */
export function hurrySql(mariadb: boolean): string {
  const settings = settingsOf(mariadb);
  const kept = settings.map((name) => `@waybill_${name} = @@session.${name}`);
  return `SET ${[...kept, ...settings.map((name) => `SESSION ${name} = ${idleSeconds}`)].join(", ")}`;
}

export function calmSql(mariadb: boolean): string {
  return `SET ${settingsOf(mariadb)
    .map((name) => `SESSION ${name} = @waybill_${name}`)
    .join(", ")}`;
}
