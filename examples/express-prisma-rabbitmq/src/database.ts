import { PrismaPg } from "@prisma/adapter-pg";
import { fromPrisma } from "waybill/handles";
import { postgres } from "waybill/postgres";
import { PrismaClient } from "./generated/prisma/client.ts";

const url = process.env["DATABASE_URL"]!;
export const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });

/** Handlers, and the outbox, work in Prisma's interactive transactions. */
export const store = postgres({ url, schema: "waybill", tx: fromPrisma, db: prisma });
