// Python source as coloured words: enough of a tokenizer to tell comments, strings, numbers,
// keywords and calls apart, line by line, with strings that span lines.

import { element } from "./dom.js";

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally " +
    "for from global if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);

const TOKEN =
  /(#.*)|([rbfuRBFU]{0,2}(?:"""|'''))|([rbfuRBFU]{0,2}(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?))|(\b\d[\w.]*)|([A-Za-z_]\w*)(?=(\s*\()?)|(\s+)|(.)/gu;

/** Return, for each line of text, its words as `[kind, text]`; the kind is "" where nothing is coloured. */
export function tokenize(lines) {
  let open = null; // the quotes that end the string which an earlier line began
  return lines.map((line) => {
    const words = [];
    let rest = line;
    if (open) {
      const end = rest.indexOf(open);
      if (end < 0) return [["string", rest]];
      words.push(["string", rest.slice(0, end + 3)]);
      rest = rest.slice(end + 3);
      open = null;
    }
    TOKEN.lastIndex = 0;
    for (let match; (match = TOKEN.exec(rest));) {
      const [text, comment, triple, string, number, name, call] = match;
      if (triple) {
        const quotes = triple.slice(-3);
        const end = rest.indexOf(quotes, TOKEN.lastIndex);
        const stop = end < 0 ? rest.length : end + 3;
        words.push(["string", rest.slice(match.index, stop)]);
        if (end < 0) open = quotes;
        TOKEN.lastIndex = stop;
        if (stop >= rest.length) break;
      } else if (comment) words.push(["comment", text]);
      else if (string) words.push(["string", text]);
      else if (number) words.push(["digits", text]);
      else if (name && KEYWORDS.has(name)) words.push(["keyword", text]);
      else if (name && call !== undefined) words.push(["call", text]);
      else words.push(["", text]);
    }
    return words;
  });
}

/** Return words as nodes; a long line may be broken after brackets, commas, dots and signs. */
export const coloured = (words) =>
  words.flatMap(([kind, text]) => [
    kind ? element("span", { class: kind }, text) : text,
    ...("(,=.[".includes(text) ? [element("wbr")] : []),
  ]);
