// Rules for the player's modules: what a browser has, and nothing left unused.

import js from "@eslint/js";

const BROWSER =
  "CSS IntersectionObserver MouseEvent MutationObserver ResizeObserver addEventListener document getComputedStyle " +
  "getSelection innerHeight localStorage location matchMedia navigator requestIdleCallback setTimeout window";

export default [
  js.configs.recommended,
  {
    files: ["src/gradtrace/player/*.js"],
    languageOptions: { globals: Object.fromEntries(BROWSER.split(" ").map((name) => [name, "readonly"])) },
    rules: {
      eqeqeq: ["error", "always", { null: "ignore" }],
      "max-lines": ["error", 600],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
