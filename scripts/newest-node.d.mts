export declare const newestLts: number;
/** A Node of that line, which has long-term support. */
export declare function nodeOf(line: number): Promise<string>;
export declare function newestNode(): Promise<string>;
