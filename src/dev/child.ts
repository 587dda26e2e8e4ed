import { runChild } from "../proof/crew/child.ts";
import { play } from "./roles.ts";

/** The program of every process of the shop except the first. */
runChild("waybill dev", play);
