import type { LogBatch, LogReading } from "../../../contracts/log-tailer.ts";
import type { Clock } from "../../../core/clock.ts";
import { LogUnreadable } from "../../../core/log-unreadable.ts";
import { onAbort, over as reason, within } from "../../../core/time.ts";
import type { Decoder } from "./decode.ts";
import type { LogLink } from "./driver.ts";
import { createFrames } from "./frames.ts";
import { lsnOf } from "./lsn.ts";
import { copyDone, query, ServerSaid, standbyStatus, terminate } from "./messages.ts";

export interface StreamOptions {
  readonly link: LogLink;
  readonly decoder: Decoder;
  /** The START_REPLICATION command. */
  readonly command: string;
  readonly from: string;
  readonly clock: Clock;
  /** How often the server hears from us. */
  readonly beatMs: number;
  /** How long a server may be silent that was asked for an answer at each beat. */
  readonly silenceMs: number;
  /** How many bytes are read ahead of whoever asks for batches. */
  readonly aheadBytes: number;
  /** A larger message is not kept: the event is read from the table. */
  readonly largestBytes: number;
  readonly signal: AbortSignal;
  /** Where the log ends at this moment. */
  endOfLog(): Promise<string>;
  /** Says what a failure means. */
  explain(error: Error): Promise<LogUnreadable>;
}

/** How often a server that has sent nothing is asked how far it is, while somebody waits for that. */
const askMs = 50;
/** How long the server may take to end the stream before its connection is closed. */
const farewellMs = 1_000;
const [dataHead, keepaliveBytes] = [25, 18];
const codeOf = (letter: string): number => letter.charCodeAt(0);
const [copyBoth, copyData, copyEnd, failed, notice, ready] = ["W", "d", "c", "E", "N", "Z"].map(codeOf) as [
  number,
  number,
  number,
  number,
  number,
  number,
];
const [walData, keepalive] = [codeOf("w"), codeOf("k")] as const;
/** What else may come between: parameters and the end of a command. */
const others = new Set(Buffer.from("SC"));
/**
 * A server of version 18 or later goes on without a publication that did not exist when a row was written, and only says so. It has the same
 * SQLSTATE for a standby that it waits for.
 */
const skipsPublication = ({ code, file }: ServerSaid): boolean => code === "55000" && file === "pgoutput.c";

/** Resolves when the server has begun to send, and rejects with a LogUnreadable when it will not. */
export async function openStream(options: StreamOptions): Promise<LogReading> {
  const { link, decoder, clock, signal } = options;
  const socket = link.take();
  const ended = new AbortController();
  let state: "starting" | "streaming" | "leaving" | "over" = "starting";
  let failure: Promise<LogUnreadable> | null = null;
  let confirmed = options.from;
  /** Bytes that arrived since the last batch was given. */
  let held = 0;
  let heardAt = clock.monotonic();
  let wake: (() => void) | null = null;
  /** The end of the batch that was given last, and of the last one that is dealt with. */
  let givenTo = lsnOf(options.from);
  let dealtWith = givenTo;
  const waiting = new Set<{ readonly for: bigint; readonly go: () => void }>();
  let started = (): void => undefined;
  const starting = new Promise<true>((resolve) => (started = () => resolve(true)));

  const finish = (): void => {
    if (state === "over") return;
    state = "over";
    ended.abort(reason);
    link.destroy();
    started();
    wake?.();
  };
  const fail = (error: Error): void => {
    if (state === "over") return;
    if (state !== "leaving") {
      failure = options.explain(error);
      failure.catch(() => undefined);
    }
    finish();
  };
  const status = (ask: boolean): void => void socket.write(standbyStatus(confirmed, clock.now(), ask));

  const takeData = (bytes: Buffer, from: number, to: number, cut: boolean): void => {
    if (bytes[from] === walData && to - from > dataHead) return decoder.take(bytes, from + dataHead, to, cut);
    if (bytes[from] !== keepalive || to - from !== keepaliveBytes)
      throw new LogUnreadable("damaged", "the log sent a message of no known kind");
    decoder.passed(bytes, from + 1);
    if (bytes[from + 17] === 1) status(false);
  };
  const take = (type: number, bytes: Buffer, from: number, to: number, cut: boolean): void => {
    if (state === "over") return;
    if (type === copyData && state === "streaming") return takeData(bytes, from, to, cut);
    if (type === copyData && state === "leaving") return;
    if (type === failed) return fail(new ServerSaid(bytes, from, to));
    if (type === notice) {
      const said = new ServerSaid(bytes, from, to);
      if (skipsPublication(said) && state !== "leaving") fail(said);
      return;
    }
    if (type === copyBoth && state === "starting") {
      state = "streaming";
      return started();
    }
    if (type === copyEnd) return state === "leaving" ? undefined : fail(new Error("the server ended the log"));
    if (type === ready && state === "leaving") {
      socket.end(terminate, finish);
      return;
    }
    if (!others.has(type)) fail(new LogUnreadable("damaged", "the server sent what is not PostgreSQL's protocol"));
  };
  const frames = createFrames(take, options.largestBytes);

  /** The socket waits while nobody asks, so that what is held stays bounded. */
  const turn = (): void => {
    if (wake !== null && decoder.ready()) return wake();
    if (wake === null && held >= options.aheadBytes) socket.pause();
  };
  socket.on("data", (chunk: Buffer) => {
    heardAt = clock.monotonic();
    held += chunk.length;
    try {
      frames.take(chunk);
    } catch (error) {
      const damaged = "the server sent what cannot be read";
      fail(error instanceof LogUnreadable ? error : new LogUnreadable("damaged", damaged, { cause: error }));
    }
    if (state === "streaming") turn();
  });
  socket.on("error", fail);
  socket.on("close", () => fail(new Error("the connection was closed")));
  const beat = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(options.beatMs, ended.signal);
      if (state !== "streaming") return;
      const listening = !socket.isPaused();
      if (listening && clock.monotonic() - heardAt > options.silenceMs)
        return fail(new Error(`the server has been silent for ${Math.round((clock.monotonic() - heardAt) / 1000)} s`));
      status(listening);
    }
  };

  let closing: Promise<void> | null = null;
  const leave = async (): Promise<void> => {
    if (state === "streaming") {
      state = "leaving";
      wake?.();
      socket.write(copyDone);
      socket.resume();
      await clock.sleep(farewellMs, ended.signal);
    }
    finish();
  };
  const close = (): Promise<void> => (closing ??= leave());

  /** Null when the reading is over. What arrived before a failure is given first. */
  const next = async (): Promise<LogBatch | null> => {
    dealtWith = givenTo;
    for (const each of waiting) if (each.for <= dealtWith) each.go();
    if (!decoder.ready() && state === "streaming") {
      const waiting = new Promise<void>((resolve) => (wake = resolve));
      resume();
      await waiting;
      wake = null;
    }
    if (state === "leaving" || closing !== null) return null;
    if (decoder.ready()) {
      held = 0;
      const batch = decoder.give();
      givenTo = lsnOf(batch.end);
      return batch;
    }
    if (failure !== null) throw await failure;
    return null;
  };
  const resume = (): void => {
    if (!socket.isPaused()) return;
    heardAt = clock.monotonic();
    socket.resume();
  };

  const leaveSignal = onAbort(signal, () => void close());
  onAbort(ended.signal, leaveSignal);
  if (state === "starting") {
    socket.resume();
    socket.write(query(options.command));
    if ((await within(clock, options.silenceMs, starting)) === null) fail(new Error("the server did not begin to send its log"));
  }
  if (failure !== null) throw await (failure as Promise<LogUnreadable>);
  void beat();

  return {
    async *[Symbol.asyncIterator]() {
      try {
        for (let batch = await next(); batch !== null; batch = await next()) {
          resume();
          yield batch;
        }
      } finally {
        await close();
      }
    },
    confirm(position) {
      if (lsnOf(position) <= lsnOf(confirmed)) return;
      confirmed = position;
      if (state === "streaming") status(true); // what the server says of its end lets the floor move while there are no events
    },
    async upToNow() {
      const end = lsnOf(await options.endOfLog());
      let passed = end <= dealtWith;
      const off = new AbortController();
      const go = (): void => {
        passed = true;
        off.abort(reason);
      };
      const entry = { for: end, go };
      waiting.add(entry);
      const leave = onAbort(ended.signal, () => off.abort(reason));
      for (; !passed && state === "streaming"; await clock.sleep(askMs, off.signal)) status(true);
      leave();
      waiting.delete(entry);
      return passed;
    },
    arriving: frames.arriving,
    close,
  };
}
