import type { BrokerAdapter } from "../../contracts/adapter.ts";
import { WaybillError } from "../../core/errors.ts";
import { checkFile, fileBeside, pathOf, removeFile } from "../../drivers/sqlite/place.ts";
import { rules } from "./examine.ts";
import { embedded } from "./index.ts";
import { starter } from "./starter.ts";

export const embeddedAdapter: BrokerAdapter = {
  name: "embedded broker",
  schemes: ["embedded"],
  example: "embedded:./broker.db",
  rules,
  starter,
  server: null,
  open(url, { create }) {
    const path = pathOf(url);
    if (!checkFile(path) && !create)
      throw new WaybillError("DESTINATION_UNAVAILABLE", `there is no file ${path}: check the path of --broker`);
    const broker = embedded({ path });
    return {
      sink: broker,
      provision: (topics) => broker.provision(topics),
      async purge(before, topics) {
        if (topics.length > 0) throw new WaybillError("USAGE", "--topics: the embedded broker purges all its topics; leave it out");
        return broker.purge(before);
      },
    };
  },
  openRun(url, run) {
    const path = fileBeside(pathOf(url), run);
    const broker = embedded({ path, provision: false });
    return { broker, provision: (topics) => broker.provision(topics), remove: async () => removeFile(path) };
  },
};
