/** Any method at all: its parameters and its result are up to the library. */
export type Method = (...given: never[]) => unknown;

/** What a method gives to the callback that it takes first. */
export type GivenBy<M> = M extends (work: infer Work, ...rest: never[]) => unknown ? TakenBy<Work> : never;

/** What a callback takes. */
export type TakenBy<Work> = Work extends (tx: infer Tx, ...rest: never[]) => unknown ? Tx : never;
