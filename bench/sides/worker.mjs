// One round of one side in a process of its own: `node worker.mjs '{"side": "relay", …}'`. It prints the measures as a line of JSON.
const task = JSON.parse(process.argv[2]);
const { default: side } = await import(`./${task.side}.mjs`);
const taken = await side(task);
process.stdout.write(`${JSON.stringify(taken)}\n`, () => process.exit(0));
