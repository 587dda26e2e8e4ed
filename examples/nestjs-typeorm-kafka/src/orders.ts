import "reflect-metadata";
import { randomUUID } from "node:crypto";
import { BadRequestException, Body, Controller, Inject, Injectable, Module, Post } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { DataSource } from "typeorm";
import { database, Order } from "./database.js";
import { OUTBOX, OutboxModule, type ShopOutbox } from "./outbox.js";

@Injectable()
class OrdersService {
  constructor(
    private readonly dataSource: DataSource,
    @Inject(OUTBOX) private readonly outbox: ShopOutbox,
  ) {}

  async place(total: number): Promise<string> {
    const id = randomUUID();
    await this.dataSource.transaction(async (manager) => {
      await manager.insert(Order, { id, total });
      await this.outbox.add(manager, { aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { total } });
    });
    return id;
  }
}

@Controller("orders")
class OrdersController {
  constructor(private readonly orders: OrdersService) {}

  @Post()
  async place(@Body() body: { total?: unknown }): Promise<{ id: string }> {
    const total = body?.total;
    if (typeof total !== "number" || !Number.isSafeInteger(total) || total <= 0)
      throw new BadRequestException("total must be a whole number above 0");
    return { id: await this.orders.place(total) };
  }
}

@Module({ imports: [database(Order), OutboxModule], controllers: [OrdersController], providers: [OrdersService] })
class OrdersModule {}

async function main(): Promise<void> {
  const app = await NestFactory.create(OrdersModule, { logger: ["warn", "error"] });
  app.enableShutdownHooks([], { useProcessExit: true }); // exit code 0 after a clean stop, not the signal
  await app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
  console.log("orders: listening");
}
void main();
