import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Certificates extends Disposable {
  /** Files in PEM: an authority of our own, and what it has signed for the server. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

/** A certificate for these names, such as `DNS:localhost` or `IP:127.0.0.1`, which any user may read: servers run as others than we. */
export function makeCertificates(...names: readonly string[]): Certificates {
  const folder = mkdtempSync(join(tmpdir(), "waybill-certificates-"));
  chmodSync(folder, 0o755);
  const openssl = (line: string): void => void execFileSync("openssl", line.split(" "), { cwd: folder, stdio: "ignore" });
  openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=nobody -keyout ca-key.pem -out ca.pem");
  openssl(`req -newkey rsa:2048 -nodes -subj /CN=server -addext subjectAltName=${names.join(",")} -keyout key.pem -out request.pem`);
  openssl("x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -copy_extensions copy -out cert.pem");
  chmodSync(join(folder, "key.pem"), 0o644);
  return {
    ca: join(folder, "ca.pem"),
    cert: join(folder, "cert.pem"),
    key: join(folder, "key.pem"),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  };
}
