import { runWorker } from "../../proof/run/worker.ts";
import { accessTo } from "../url.ts";

/** The program of every process of a run except the first. */
runWorker(accessTo());
