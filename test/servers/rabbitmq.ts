import { execFile } from "node:child_process";
import { chownSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { rabbitmqBinaries } from "../../scripts/servers.mjs";
import { accountFor, freePort } from "./place.ts";
import { bareEnv, superviseServer, type Server, type Settings } from "./server.ts";

const run = promisify(execFile);

export interface RabbitmqServer extends Server {
  /** Every process of it stands still, and its connections with it, until `thaw`. */
  freeze(): void;
  thaw(): void;
  /** `rabbitmqctl` with these arguments; it takes a second. What it says. */
  control(...args: readonly string[]): Promise<string>;
  /** Of the management plugin, where it was asked for. */
  readonly management: string;
}

export interface RabbitmqRecipe {
  /** Lines of rabbitmq.conf. */
  readonly settings?: Settings;
  /** Its only port speaks TLS, with these files. */
  readonly secure?: { readonly ca: string; readonly cert: string; readonly key: string };
  readonly management?: boolean;
  /** The machine's own where it is left out. */
  readonly version?: 4 | "newest" | undefined;
  /** Users, virtual hosts and permissions, as rabbitmqctl exports them; then there is no guest. */
  readonly definitions?: object;
  /** One of several: see clusters.ts. */
  readonly member?: RabbitmqMember;
}

export interface RabbitmqMember {
  readonly name: string;
  /** Of a port mapper that outlives each of them. */
  readonly mapperPort: number;
  readonly cookie: string;
}

/** Erlang's own port mapper would be left behind: this one ends with its server, and the server with us. */
const script = `
folder=$1; server=$2; mapper=$3; name=$4; port=$5
export HOME="$folder" ERL_EPMD_PORT="$port" ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT="$6" RABBITMQ_NODENAME="$name"
export RABBITMQ_MNESIA_BASE="$folder/data" RABBITMQ_LOG_BASE="$folder/logs" RABBITMQ_LOGS=- RABBITMQ_PID_FILE="$folder/pid"
export RABBITMQ_CONFIG_FILE="$folder/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$folder/plugins" RABBITMQ_CONF_ENV_FILE=/dev/null
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1} +S 2:2" RUNNING_UNDER_SYSTEMD=true
test -z "$mapper" && exec "$server"
"$mapper" -port "$port" -address 127.0.0.1 & first=$!
"$server" & second=$!
trap 'kill -TERM $second' TERM
wait $second; wait $second; how=$?
kill $first; wait $first
exit $how
`;

/** It needs four ports, and another program may take one of them between our look and its start. */
export async function startRabbitmq(recipe: RabbitmqRecipe = {}): Promise<RabbitmqServer> {
  for (let tries = recipe.member === undefined ? 3 : 1; ; tries--) {
    try {
      return await startOnce(recipe);
    } catch (error) {
      if (tries === 1) throw error;
    }
  }
}

async function startOnce(recipe: RabbitmqRecipe): Promise<RabbitmqServer> {
  const { settings = {}, secure, management = false, definitions, member } = recipe;
  const { server: program, control, epmd, env: own } = await rabbitmqBinaries(recipe.version);
  const [mapperPort, nodePort, pagePort] = [member?.mapperPort ?? (await freePort()), await freePort(), await freePort()];
  const name = member?.name ?? `waybill-${mapperPort}@localhost`;
  const version = versionOf(program);
  const account = accountFor("rabbitmq");
  const server = await superviseServer({
    name: `RabbitMQ ${version}`,
    version,
    command: "/bin/sh",
    account,
    env: own,
    prepare(folder) {
      if (member === undefined) return;
      const file = join(folder, ".erlang.cookie");
      writeFileSync(file, member.cookie, { mode: 0o400 });
      if (account.uid !== undefined && account.gid !== undefined) chownSync(file, account.uid, account.gid);
    },
    args: (folder, port) => {
      const files = secure && {
        "ssl_options.cacertfile": secure.ca,
        "ssl_options.certfile": secure.cert,
        "ssl_options.keyfile": secure.key,
      };
      const listen = secure === undefined ? "listeners.tcp.own" : "listeners.ssl.own";
      const all = {
        ...(secure === undefined ? {} : { "listeners.tcp": "none" }),
        ...{ [listen]: `127.0.0.1:${port}`, ...files },
        ...(management ? { "management.tcp.ip": "127.0.0.1", "management.tcp.port": pagePort } : {}),
        ...(definitions === undefined ? {} : { load_definitions: join(folder, "definitions.json") }),
        ...settings,
      };
      if (definitions !== undefined) writeFileSync(join(folder, "definitions.json"), JSON.stringify(definitions), { mode: 0o644 });
      const lines = Object.entries(all).map(([setting, value]) => `${setting} = ${value}\n`);
      writeFileSync(join(folder, "rabbitmq.conf"), lines.join(""), { mode: 0o644 });
      writeFileSync(join(folder, "plugins"), management ? "[rabbitmq_management].\n" : "[].\n", { mode: 0o644 });
      return ["-c", script, "rabbitmq", folder, program, member === undefined ? epmd : "", name, String(mapperPort), String(nodePort)];
    },
    url: (port, vhost = "") =>
      `amqp${secure === undefined ? "" : "s"}://guest:guest@127.0.0.1:${port}${vhost && `/${encodeURIComponent(vhost)}`}`,
    ready: /Server startup complete/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
  const env = { ...bareEnv, ...own, HOME: server.folder, ERL_EPMD_PORT: String(mapperPort), RABBITMQ_CONF_ENV_FILE: "/dev/null" };
  return Object.defineProperties(
    {
      freeze: () => signal(server.pid, "SIGSTOP"),
      thaw: () => signal(server.pid, "SIGCONT"),
      control: async (...args: readonly string[]) =>
        (await run(control, ["-q", "-n", name, ...args], { env, cwd: server.folder, timeout: 100_000, ...account })).stdout,
      management: `http://guest:guest@127.0.0.1:${pagePort}`,
    } as RabbitmqServer,
    Object.getOwnPropertyDescriptors(server),
  );
}

/** What tells the nodes of a cluster each other's ports. */
export async function startPortMapper(version: RabbitmqRecipe["version"]): Promise<Server> {
  const { epmd, env } = await rabbitmqBinaries(version);
  return superviseServer({
    name: "Erlang port mapper",
    version: "",
    command: epmd,
    account: accountFor("rabbitmq"),
    env,
    prepare: () => undefined,
    args: (_, port) => ["-d", "-port", String(port), "-address", "127.0.0.1"],
    url: String,
    ready: /epmd running/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  });
}

function versionOf(program: string): string {
  const name = readdirSync(join(dirname(program), "../lib")).find((each) => each.startsWith("rabbitmq_server-"));
  return name?.replace("rabbitmq_server-", "") ?? "unknown";
}

/** To the process and all below it. */
function signal(pid: number | null, name: NodeJS.Signals): void {
  if (pid === null) return;
  for (const each of [pid, ...descendants(pid)]) {
    try {
      process.kill(each, name);
    } catch {
      // It has ended.
    }
  }
}

function descendants(pid: number): readonly number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...descendants(child)]);
}
