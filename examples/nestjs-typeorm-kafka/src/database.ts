import { TypeOrmModule } from "@nestjs/typeorm";
import { Column, Entity, PrimaryColumn, PrimaryGeneratedColumn } from "typeorm";

@Entity("orders")
export class Order {
  @PrimaryColumn("text")
  id: string;

  @Column("integer")
  total: number;
}

@Entity("parcels")
export class Parcel {
  @PrimaryGeneratedColumn()
  id: number;

  @Column("text", { name: "order_id" })
  orderId: string;
}

/** TypeORM creates the entities' tables here, to keep the example short; it leaves Waybill's tables alone. */
export const database = (entity: typeof Order | typeof Parcel) =>
  TypeOrmModule.forRoot({ type: "postgres", url: process.env["DATABASE_URL"]!, entities: [entity], synchronize: true });
