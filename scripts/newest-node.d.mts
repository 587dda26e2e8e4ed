export declare const newestLts: number;
export declare function newestNode(): Promise<string>;
