import { maxMarkBytes } from "../../core/letter.ts";
import { maxHeadersText } from "../kit/stored.ts";
import type { Names } from "./names.ts";
import { literal } from "./values.ts";

/** JSON_VALID of MariaDB lets escapes pass that JSON does not have, and numbers that end in the middle. */
const escape = literal(String.raw`\\["\\/bfnrtu]`);
const text = literal(String.raw`"(?:[^"\\]++|\\.)*+"`);
const halfNumber = literal("-(?![0-9])|[.](?![0-9])|[0-9][eE](?![-+]?[0-9])");
const nothing = literal("");

const isJson = (column: string): string =>
  `LOCATE(CHAR(92), REGEXP_REPLACE(${column}, ${escape}, ${nothing})) = 0 AND NOT REGEXP_REPLACE(${column}, ${text}, ${nothing}) REGEXP ${halfNumber}`;

/** No zero date, and none with a zero in it: '0000-00-00', '2026-00-10'. */
const isMoment = (column: string): string => `NEW.${column} IS NULL OR TO_DAYS(NEW.${column}) IS NOT NULL`;
const isName = (column: string): string =>
  `OCTET_LENGTH(NEW.${column}) BETWEEN 1 AND ${maxMarkBytes} AND LOCATE(CHAR(0 USING utf8mb4), NEW.${column}) = 0`;
const printable = literal("^[ -~]+$");

/** What every event must meet, by name. NULL counts as broken: INSERT IGNORE replaces a NULL in a NOT NULL column by another value. */
const rules = (mariadb: boolean): Readonly<Record<string, string>> => ({
  id: `OCTET_LENGTH(NEW.id) > 0 AND LOCATE(CHAR(0 USING ascii), NEW.id) = 0`,
  name: ["aggregate_type", "aggregate_id", "event_type"].map(isName).join(" AND "),
  event_version: "NEW.event_version >= 1",
  payload: "(NEW.payload IS NULL) <> (NEW.payload_bytes IS NULL)",
  content_type: `NEW.content_type REGEXP ${printable}`,
  idempotency_key: `NEW.idempotency_key IS NULL OR ${isName("idempotency_key")}`,
  headers: `NEW.headers = ${literal("{}")} OR OCTET_LENGTH(NEW.headers) <= ${maxHeadersText} AND COALESCE(JSON_VALID(NEW.headers), 0) = 1
      AND JSON_TYPE(NEW.headers) = 'OBJECT'${mariadb ? ` AND ${isJson("NEW.headers")}` : ""}`,
  status: "NEW.status + 0 > 0 AND (NEW.status <> 'FAILED' OR NEW.next_attempt_at IS NOT NULL)",
  retry_count: "NEW.retry_count BETWEEN 0 AND 1000000",
  moment: ["created_at", "available_at", "next_attempt_at", "published_at"].map((column) => `(${isMoment(column)})`).join(" AND "),
});

/**
 * Refuses rows that no relay could carry, with the error of a constraint. A CHECK would not do: a session can turn CHECKs off, an UPDATE
 * that parks a bad row would violate them again, and adding one copies the table while its writers wait.
 */
export const guard = (n: Names, mariadb: boolean): string => `
CREATE TRIGGER ${n.guard} BEFORE INSERT ON ${n.outbox} FOR EACH ROW
BEGIN${Object.entries(rules(mariadb))
  .map(
    ([name, rule]) => `
  IF NOT COALESCE((${rule}), 0) THEN
    SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 4025, MESSAGE_TEXT = ${literal(`CONSTRAINT ${n.constraint(name)} failed`)};
  END IF;`,
  )
  .join("")}
END`;

/** The CHECKs of version 1 that the guard takes the place of. */
export const replaced = ["id", "name", "event_version", "payload", "headers", "status"] as const;
