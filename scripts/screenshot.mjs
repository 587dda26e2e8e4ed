// Runs the shop on a pseudo-terminal (script, of util-linux) and draws one picture of its live view: docs/dev.svg.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const columns = 110;
const rows = 34;
const root = fileURLToPath(new URL("..", import.meta.url));
const command = `stty cols ${columns} rows ${rows}; exec "${process.execPath}" dist/cli/main.js dev --faults --exit-after 9s`;
const shop = spawn("script", ["-qefc", command, "/dev/null"], {
  cwd: root,
  stdio: ["ignore", "pipe", "inherit"],
  env: { ...process.env, TERM: "xterm-256color" },
});
let output = "";
shop.stdout.setEncoding("utf8").on("data", (text) => (output += text));
const code = await new Promise((resolve) => shop.on("close", resolve));
if (code !== 0) throw new Error(`the shop ended with ${code}`);

// A frame begins where the cursor goes back to the top, and ends by clearing what is below.
const esc = "\u001b\\[";
const home = new RegExp(`^[\\s\\S]*?${esc}(?:\\?25l|\\d+A\\r|2J${esc}H)`);
const frames = output.split("\u001b[J").map((frame) => frame.replace(home, ""));
const frame = frames[Math.floor(frames.length * 0.75)] ?? "";
const colours = { 1: "#ffffff", 2: "#8b949e", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341" };
const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

const lines = frame
  .replaceAll("\u001b[K", "")
  .split("\n")
  .map((line) => line.replace("\r", ""));
while (lines.at(-1)?.trim() === "") lines.pop();
const lineHeight = 18;
const text = lines.map((line, at) => {
  let tone = "";
  const pieces = line.split(new RegExp(`${esc}([\\d;]*)m`)).map((piece, i) => {
    if (i % 2 === 1) {
      tone = piece === "0" || piece === "" ? "" : piece;
      return "";
    }
    const fill = colours[tone] === undefined ? "" : ` fill="${colours[tone]}"`;
    return piece === "" ? "" : `<tspan${fill}>${escape(piece)}</tspan>`;
  });
  return `<text x="16" y="${28 + at * lineHeight}" xml:space="preserve">${pieces.join("")}</text>`;
});
const height = lines.length * lineHeight + 32;
writeFileSync(
  new URL("../docs/dev.svg", import.meta.url),
  `<svg xmlns="http://www.w3.org/2000/svg" width="${columns * 8.43 + 32}" height="${height}" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" fill="#e6edf3">
<title>waybill dev --faults, in a terminal</title>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
${text.join("\n")}
</svg>
`,
);
console.log("docs/dev.svg");
