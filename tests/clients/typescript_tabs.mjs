// Runs the code in TypeScript of pages: one request a line, as JSON, on the standard input. The names that a block defines stay for
// the later blocks of its page.

import { Console } from "node:console";
import { createInterface } from "node:readline";
import { PassThrough } from "node:stream";
import { start } from "node:repl";

const pages = new Map();

function pageOf(name) {
  if (!pages.has(name)) pages.set(name, start({ prompt: "", input: new PassThrough(), output: new PassThrough(), terminal: false }));
  return pages.get(name);
}

async function run({ page, code, environment }) {
  const { context, eval: evaluate, output } = pageOf(page);
  const printed = new PassThrough();
  context.console = new Console(printed);
  Object.assign(process.env, environment);
  // Here a static `import` is an error, and its dynamic form gives the same names.
  const script = code.replace(/^import (\{.*?\}) from (".*?");$/gms, "const $1 = await import($2);");
  const failure = await new Promise((resolve) => {
    output.removeAllListeners("data").on("data", (text) => String(text).trim() && resolve(String(text))); // what is thrown at once
    evaluate(script, context, "guide", (error) => resolve(error ? String(error.stack ?? error) : ""));
  });
  return { printed: printed.read()?.toString() ?? "", failure };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await run(JSON.parse(line)))}\n`);
}
process.exit(0);
