CREATE TABLE "orders" (
    "id" TEXT NOT NULL,
    "total" INTEGER NOT NULL,
    CONSTRAINT "orders_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "parcels" (
    "id" SERIAL NOT NULL,
    "order_id" TEXT NOT NULL,
    CONSTRAINT "parcels_pkey" PRIMARY KEY ("id")
);
