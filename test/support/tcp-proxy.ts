export { startTcpProxy, type Direction, type Fault, type Target, type TcpProxy } from "../../src/cli/verify/tcp-proxy.ts";
