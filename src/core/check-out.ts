/** A client of a pg pool. It emits an event when its session ends between two statements. */
export interface PooledClient {
  on(event: "error", listener: (error: Error) => void): unknown;
  off(event: "error", listener: (error: Error) => void): unknown;
}

/**
 * A client of a pg pool, with `listen` on its errors. The pool stops listening when it hands a client out, and an error without a
 * listener ends the process. A server that ends a session as it begins sends both in one packet, before a promise can resolve. So the
 * pool is given a callback, which runs at once. A wrapper that only knows promises works too, without that protection.
 */
export function checkOut<Client extends PooledClient>(
  pool: { connect(): Promise<Client> },
  listen: (error: Error) => void,
): Promise<Client> {
  return new Promise((resolve, reject) => {
    let given: Client | undefined;
    const take = (client: Client | undefined): void => {
      if (client === undefined || given !== undefined) return;
      given = client;
      client.on("error", listen);
      resolve(client);
    };
    const callback = (error: Error | undefined, client: Client | undefined): void => (error ? reject(error) : take(client));
    const connect = pool.connect as (
      callback: (error: Error | undefined, client: Client | undefined) => void,
    ) => Promise<Client> | undefined;
    Reflect.apply(connect, pool, [callback])?.then(take, reject);
  });
}
