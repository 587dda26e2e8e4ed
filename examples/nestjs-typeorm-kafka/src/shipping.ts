import "reflect-metadata";
import { type BeforeApplicationShutdown, Injectable, Module, type OnApplicationBootstrap } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { DataSource } from "typeorm";
import { createSubscriber, type Service } from "waybill";
import { fromTypeorm } from "waybill/handles";
import { kafka } from "waybill/kafka";
import { postgres } from "waybill/postgres";
import { database, Parcel } from "./database.js";

@Injectable()
class Shipping implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private readonly subscriber: Service;

  constructor(dataSource: DataSource) {
    this.subscriber = createSubscriber({
      consumer: "shipping",
      source: kafka({ url: process.env["BROKER_URL"]! }),
      inbox: postgres({ url: process.env["DATABASE_URL"]!, tx: fromTypeorm, db: dataSource }),
      topics: ["order.events"],
      handlers: {
        OrderPlaced: async (event, manager) => {
          await manager.insert(Parcel, { orderId: event.aggregateId });
        },
      },
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    await this.subscriber.start();
  }

  /** Not later: TypeORM closes its connections in onApplicationShutdown, and handlers in hand need them. */
  async beforeApplicationShutdown(): Promise<void> {
    await this.subscriber.drain();
  }
}

@Module({ imports: [database(Parcel)], providers: [Shipping] })
class ShippingModule {}

async function main(): Promise<void> {
  const app = await NestFactory.createApplicationContext(ShippingModule, { logger: ["warn", "error"] });
  app.enableShutdownHooks([], { useProcessExit: true }); // exit code 0 after a clean stop, not the signal
  console.log("shipping: started");
}
void main();
