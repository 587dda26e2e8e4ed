/**
 * Places where a test may crash, pause or fail the path. In a user's process none of them is set:
 * the default does nothing, and nothing reads the environment.
 */
export type Failpoint =
  | "after-claim"
  | "before-publish"
  | "after-publish"
  | "before-settle"
  | "after-settle"
  | "before-renew"
  | "before-handle"
  | "before-commit"
  | "after-effect"
  | "after-ack";

export interface Failpoints {
  hit(at: Failpoint, ids: readonly string[]): void | Promise<void>;
}

export const noFailpoints: Failpoints = { hit: () => undefined };
