import { Module } from "@nestjs/common";
import { createOutbox } from "waybill";
import { fromTypeorm } from "waybill/handles";
import { postgres } from "waybill/postgres";

const makeOutbox = () => createOutbox({ store: postgres({ url: process.env["DATABASE_URL"]! }), tx: fromTypeorm });

/** The type to inject: `@Inject(OUTBOX) private readonly outbox: ShopOutbox`. */
export type ShopOutbox = ReturnType<typeof makeOutbox>;
export const OUTBOX = Symbol("outbox");

@Module({ providers: [{ provide: OUTBOX, useFactory: makeOutbox }], exports: [OUTBOX] })
export class OutboxModule {}
