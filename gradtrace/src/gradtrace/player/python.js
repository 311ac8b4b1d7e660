// Python source as coloured words: comments, strings (which may span lines), numbers, keywords and calls.

import { element } from "./dom.js";

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally " +
    "for from global if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);

const TOKEN =
  /(#.*)|([rbfu]{0,2}(?:("""|''')[^]*?(?:\3|$)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?))|(\b\d[\w.]*)|([a-z_]\w*)(?=( *\()?)|\s+|./giu;

/** Return, for each line of text, its words as `[kind, text]`; the kind is "" where nothing is coloured. */
export function tokenize(lines) {
  const rows = [[]];
  for (const [token, comment, string, , number, name, call] of lines.join("\n").matchAll(TOKEN)) {
    let kind = "";
    if (comment) kind = "comment";
    else if (string) kind = "string";
    else if (number) kind = "digits";
    else if (KEYWORDS.has(name)) kind = "keyword";
    else if (call !== undefined) kind = "call";
    const [first, ...rest] = token.split("\n").map((text) => [kind, text]);
    rows.at(-1).push(first);
    rows.push(...rest.map((word) => [word]));
  }
  return rows;
}

/** Return words as nodes; a long line may be broken after brackets, commas, dots and signs. */
export const coloured = (words) =>
  words.flatMap(([kind, text]) => [
    kind ? element("span", { class: kind }, text) : text,
    ...("(,=.[".includes(text) ? [element("wbr")] : []),
  ]);
