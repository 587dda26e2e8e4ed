import type { Sink } from "../../../src/contracts/sink.ts";
import type { Source } from "../../../src/contracts/source.ts";
import type { StoredMessage } from "../../../src/conformance/sink.ts";
import type { ServerName } from "../../servers/available.ts";
import type { Server } from "../../servers/server.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcp-proxy.ts";

export type Broker = Sink & Source;

export interface BrokerServer extends Server {
  /** Every process of it stands still, and its connections with it, until `thaw`. */
  freeze(): void;
  thaw(): void;
}

/** A way to a server's topics: a URL, and an adapter that opens it. */
export interface Reach {
  /** For raw clients, which nothing of ours and no broken network must touch. */
  readonly url: string;
  open(): Broker;
}

/** A broker, as the suites of this folder know it. */
export interface Subject {
  readonly name: ServerName;
  start(): Promise<BrokerServer>;
  /** The adapter with short time-outs. */
  open(url: string): Broker;
  /** A server that is reached through a network of ours. */
  proxied(): Promise<{ readonly server: BrokerServer; readonly proxy: TcpProxy; readonly url: string } & AsyncDisposable>;
  /** Makes the topics, and a place in them for the consumers; what is there stays as it is. */
  provision(url: string, topics: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Takes the topic away, with a raw client. */
  remove(url: string, topic: string): Promise<void>;
  /** What the relay and the subscriber say while it is away. */
  readonly gone: { readonly publishing: RegExp; readonly reading: RegExp };
  /** Everything that the topic holds, oldest first by aggregate, read with a raw client. */
  stored(url: string, topic: string): Promise<readonly StoredMessage[]>;
  /** A reach whose topic takes no message of `bytes`. */
  small(server: BrokerServer, topic: string): Promise<Reach & AsyncDisposable & { readonly bytes: number }>;
  /** How long a link may be silent before the adapter gives it up. */
  readonly silenceMs: number;
  /** The broker drops the copies of what it has. */
  readonly dedupes: boolean;
  /** In compiled code, for processes: the module of the adapter, below dist/. */
  readonly module: string;
}

/** What `proxied` is for a server that does not tell its clients where it is. */
export async function throughProxy(start: () => Promise<BrokerServer>): ReturnType<Subject["proxied"]> {
  const server = await start();
  const proxy = await startTcpProxy(server.port);
  return {
    server,
    proxy,
    url: server.url().replace(`:${server.port}`, `:${proxy.port}`),
    async [Symbol.asyncDispose]() {
      await proxy[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

let made = 0;
/** An aggregate type that no other test has, and its topic. */
export function freshType(): { readonly aggregateType: string; readonly topic: string } {
  const aggregateType = `Order${(made += 1)}`;
  return { aggregateType, topic: `${aggregateType.toLowerCase()}.events` };
}
