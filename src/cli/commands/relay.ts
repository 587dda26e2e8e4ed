import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { systemClock } from "../../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { lineOf, logJson, logText } from "../../core/log.ts";
import type { Observe } from "../../core/path-events.ts";
import { never } from "../../core/time.ts";
import type { HttpServer } from "../../observe/http.ts";
import { createMetrics, type Metrics } from "../../observe/metrics.ts";
import { observers } from "../../observe/observers.ts";
import { openPages, type PagesOptions } from "../../observe/pages.ts";
import { createRelay, type HousekeepingOptions, type Relay } from "../../relay/create-relay.ts";
import type { CommandBroker, CommandStore } from "../open.ts";
import { housekeepingSettings, relaySettings } from "../../relay/settings.ts";
import { commandSettings, type Config } from "../config.ts";
import { chosen, flagsOf } from "../flags.ts";
import { consumerTopics } from "../read.ts";
import { stoppedAtOnce } from "../../core/service.ts";
import { command, flag, type Values } from "../parse.ts";
import { brokerFlag, logFlag, storeFlag } from "../places.ts";
import type { Terminal } from "../terminal.ts";
import { brokerOf, given, storeOf } from "./shared.ts";
import { usage } from "../usage.ts";

const ownFlags = flagsOf(commandSettings);
const flags = {
  ...storeFlag,
  ...brokerFlag,
  ...logFlag,
  once: flag.switch("publish what is due, then end; for cron"),
  ...flagsOf(relaySettings),
  ...flagsOf(housekeepingSettings),
  listen: flag.switch("be woken by LISTEN and NOTIFY, on PostgreSQL; producers need the same option of their store"),
  "no-housekeeping": flag.switch("leave purging and watching the tables to other relays, or to waybill purge"),
  http: ownFlags.http,
  consumers: flag.value(
    "A=T,B=U",
    "consumers, with a topic each, whose lag /metrics shows beside that of the consumers whose inbox is in the store",
    consumerTopics,
  ),
  "http-token-file": flag.text("PATH", "file with the token for /metrics (or WAYBILL_HTTP_TOKEN); needed beyond loopback"),
};

export const relay = command({
  name: "relay",
  summary: "Publishes events to the broker until SIGTERM or SIGINT; it then finishes what it holds. A second signal stops it at once.",
  flags,
  examples: [
    "waybill relay --store sqlite:./app.db --broker embedded:./broker.db",
    "waybill relay --store sqlite:./app.db --broker embedded:./broker.db --once",
    "waybill relay --store sqlite:./app.db --broker embedded:./broker.db --http 127.0.0.1:9464 --json",
  ],
  async run(terminal, values) {
    const { config } = terminal;
    if (values.once && values.http !== undefined) usage("--http is for a relay that goes on: leave --once or --http out");
    refuseIdle(values);
    await using opened = await storeOf(terminal, values, false, false);
    if ((values.mode ?? config.mode) === "tail" && opened.store.tail === undefined)
      throw new WaybillError("UNSUPPORTED", `--mode tail: ${opened.noTail}`);
    await using broker = await brokerOf(terminal, values);
    await waited(values.once, () => opened.store.schema.check());
    await waited(values.once, () => broker.sink.connect(never));
    const metrics = createMetrics();
    const log = logger(terminal, values.once);
    const service = createRelay({
      store: opened.store,
      sink: broker.sink,
      observe: observers(metrics.observe, log.event, ...(config.observe === undefined ? [] : [config.observe])),
      ...chosenOptions(terminal, values),
    });
    if (values.once) await runOnce(terminal, service);
    else await runOn(terminal, values, { opened, broker, service, metrics, log });
  },
});

/** A long-running relay waits while its store or its broker is away. With --once, or when no wait mends the error, the command fails here. */
async function waited(once: boolean, look: () => Promise<unknown>): Promise<void> {
  try {
    await look();
  } catch (error) {
    if (once || !isWaybillError(error) || !error.retryable) throw error;
  }
}

/** What flags and the file set. Flags win over the file. */
export function chosenOptions({ config }: Pick<Terminal, "config">, values: Values<typeof flags>) {
  return {
    ...chosen(relaySettings, values, config),
    housekeeping: values["no-housekeeping"] || config.housekeeping === false ? (false as const) : choresOf(config, values),
  };
}

function choresOf(config: Config, values: Values<typeof flags>): HousekeepingOptions {
  const { everyMs, warn } = typeof config.housekeeping === "object" ? config.housekeeping : {};
  return { ...given({ everyMs, warn, archive: config.archive }), ...chosen(housekeepingSettings, values, config) };
}

/** Refuses a flag that would have no effect. */
function refuseIdle(values: Values<typeof flags>): void {
  if (values.retention === undefined && !values["no-housekeeping"]) return;
  const given = values.retention === undefined ? "--no-housekeeping" : "--retention";
  if (values.once) usage(`${given} is for a relay that goes on, and --once purges nothing: use waybill purge beside it`);
  if (values.retention !== undefined && values["no-housekeeping"])
    usage("--retention and --no-housekeeping do not go together: leave one out");
}

async function runOnce(terminal: Terminal, service: Relay): Promise<void> {
  terminal.onSignal((nth) => void (nth === 1 ? service.drain() : service.stop()));
  const summary = await service.runOnce();
  terminal.out.answer(summary, () => [
    `published ${summary.published}, failed ${summary.failed}, dead ${summary.dead}, held ${summary.held}`,
  ]);
}

interface Running {
  readonly opened: CommandStore;
  readonly broker: CommandBroker;
  readonly service: Relay;
  readonly metrics: Metrics;
  readonly log: Logger;
}

async function runOn(terminal: Terminal, values: Values<typeof flags>, { opened, broker, service, metrics, log }: Running): Promise<void> {
  let phase: "starting" | "running" | "draining" | "stopping" = "starting";
  terminal.onSignal((nth) => {
    phase = nth === 1 ? "draining" : "stopping";
    if (nth === 1) log.say("draining", "finishing what is held; a second signal stops at once");
    void (nth === 1 ? service.drain() : service.stop());
  });
  const { store } = opened;
  const consumers = values.consumers ?? terminal.config.consumers;
  const pages = { store, inbox: store, broker: broker.sink, metrics, ready: () => phase === "running", ...given({ consumers }) };
  await using server = await serve(terminal, values, pages);
  // npx and npm put processes of their own around this one: killing theirs does not kill the relay.
  log.say("starting", `process ${process.pid} on ${hostname()}`, { process: process.pid, host: hostname() });
  await service.start().catch((error: unknown) => {
    if (phase === "starting" || !isWaybillError(error, "STOPPED")) throw error; // a signal before the start is a clean end
  });
  if (phase === "starting") {
    phase = "running";
    const at = server === null ? {} : { http: server.url };
    log.say("started", `publishing from ${store.name} to ${broker.sink.name}${server === null ? "" : `, ${server.url}`}`, at);
  }
  await service.stopped;
  if ((phase as string) === "stopping") throw stoppedAtOnce();
  log.say("drained", "everything is settled and the lanes are given back");
}

const words = { address: "--http", token: "--http-token-file PATH or WAYBILL_HTTP_TOKEN" };

async function serve(
  { config, env }: Terminal,
  values: Values<typeof flags>,
  pages: Omit<PagesOptions, "address">,
): Promise<HttpServer | null> {
  const address = values.http ?? config.http;
  const file = values["http-token-file"];
  if (address === undefined) {
    if (file !== undefined) usage("--http-token-file needs --http HOST:PORT");
    if (values.consumers !== undefined) usage("--consumers needs --http HOST:PORT, whose /metrics shows how far they are behind");
    return null;
  }
  const token = file === undefined ? env["WAYBILL_HTTP_TOKEN"] : tokenFrom(file);
  return openPages({ ...pages, address, token: token === undefined || token === "" ? null : token }, words);
}

function tokenFrom(path: string): string {
  let token: string;
  try {
    token = readFileSync(path, "utf8").trim();
  } catch (cause) {
    throw new WaybillError("INVALID_OPTION", `--http-token-file ${path} cannot be read: ${asError(cause).message}`, { cause });
  }
  if (token === "") throw new WaybillError("INVALID_OPTION", `--http-token-file ${path} is empty`);
  return token;
}

interface Logger {
  readonly event: Observe;
  say(what: "starting" | "started" | "draining" | "drained", text: string, more?: Readonly<Record<string, string | number>>): void;
}

/** With --once and --json the summary is the only output, so that it can be parsed. */
function logger({ out }: Terminal, once: boolean): Logger {
  const now = (): Date => new Date(systemClock.now());
  return {
    event(event) {
      const line = lineOf(event);
      if (line === null) return;
      if (!out.json) out.line(logText(now(), line));
      else if (!once) out.line(logJson(now(), line.level, event));
    },
    say(what, text, more = {}) {
      out.line(
        out.json ? logJson(now(), "info", { type: `relay.${what}`, ...more }) : logText(now(), { level: "info", text: `${what}: ${text}` }),
      );
    },
  };
}
