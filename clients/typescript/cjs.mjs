// Says that the modules of dist/cjs are those of CommonJS; package.json says of all others that they are modules of ES.
import { writeFileSync } from "node:fs";

writeFileSync(new URL("dist/cjs/package.json", import.meta.url), '{ "type": "commonjs" }\n');
