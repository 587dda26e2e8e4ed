export { startTcpProxy, type Passage, type Direction, type LinkFault, type Target, type TcpProxy } from "../../src/proof/run/tcp-proxy.ts";
