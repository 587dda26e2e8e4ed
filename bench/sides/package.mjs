// The built package of any checkout.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

export const from = (root, file) => import(pathToFileURL(join(root, "dist", file)).href);
