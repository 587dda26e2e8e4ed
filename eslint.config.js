import js from "@eslint/js";
import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

const port = (what, instead) => ({ ...what, message: `Not in runtime code: use ${instead}.` });
const clock = "the Clock that was passed in (core/clock.ts)";
const random = "the Random that was passed in (core/random.ts)";
const options = "an option; only cli/ reads the environment";

export default defineConfig(
  { ignores: [".cache/", "dist/", "coverage/", "node_modules/", "examples/*-*-*/"] },
  js.configs.recommended,
  {
    files: ["**/*.ts"],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/no-floating-promises": "error",
      "@typescript-eslint/no-misused-promises": "error",
      "@typescript-eslint/no-explicit-any": "error",
      "@typescript-eslint/switch-exhaustiveness-check": "error",
      "@typescript-eslint/consistent-type-imports": ["error", { fixStyle: "inline-type-imports" }],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      // A contract is asynchronous even where one adapter has nothing to wait for.
      "@typescript-eslint/require-await": "off",
      // A caught value is passed on unchanged.
      "@typescript-eslint/prefer-promise-reject-errors": ["error", { allowThrowingUnknown: true }],
      // Factories return closures: there is no `this` to lose.
      "@typescript-eslint/unbound-method": "off",
      eqeqeq: "error",
      "no-control-regex": "off",
    },
  },
  {
    files: ["src/**/*.ts"],
    ignores: ["src/core/clock.ts", "src/core/random.ts", "src/cli/**"],
    rules: {
      "no-restricted-globals": [
        "error",
        {
          checkGlobalObject: true,
          globals: [
            ...["setTimeout", "setInterval", "setImmediate", "performance"].map((name) => port({ name }, clock)),
            port({ name: "crypto" }, random),
          ],
        },
      ],
      "no-restricted-properties": [
        "error",
        port({ object: "Date", property: "now" }, clock),
        port({ object: "AbortSignal", property: "timeout" }, "withDeadline (core/clock.ts)"),
        port({ object: "Math", property: "random" }, random),
        port({ object: "crypto", property: "randomUUID" }, random),
        port({ object: "process", property: "env" }, options),
        port({ object: "process", property: "hrtime" }, clock),
      ],
      "no-restricted-syntax": [
        "error",
        { selector: "NewExpression[callee.name='Date'][arguments.length=0]", message: `Not in runtime code: use ${clock}.` },
      ],
      "no-restricted-imports": [
        "error",
        {
          paths: [
            ...["node:timers", "node:timers/promises", "node:perf_hooks"].map((name) => port({ name }, clock)),
            port({ name: "node:crypto", importNames: ["randomUUID", "randomBytes", "randomInt", "randomFillSync", "webcrypto"] }, random),
            port({ name: "node:process", importNames: ["env"] }, options),
          ],
        },
      ],
    },
  },
  {
    files: ["**/*.js", "**/*.mjs"],
    languageOptions: { globals: { console: "readonly", process: "readonly", URL: "readonly" } },
  },
);
