// A pasted error message finds its entry.  Sphinx wants every word on one page; but shapes, versions
// and names in a message are the reader's own, and a heading is only a part of it.

const wordsOf = (text) => text.toLowerCase().match(/[a-z0-9]+/g) ?? [];

// What the messages have in common whose entry has this heading: its words, with a few others between
// them, such as the name of an operation.  null for a heading that is too short to be a message.
function patternOf(heading) {
  const words = wordsOf(heading.replace(/^\w*(Error|Warning): /, "").replace(/ \([^)]*\)$/, ""));
  return words.length < 5 ? null : new RegExp(words.join("(?: [a-z0-9]+){0,6}? "));
}

// The headings that the message contains, the best last; the atlas before all, which says what to do.
function headingsIn(message) {
  const { alltitles, docnames, filenames, titles } = Search._index;
  const text = wordsOf(message).join(" ");
  const found = [];
  for (const [heading, places] of Object.entries(alltitles)) {
    if (!patternOf(heading)?.test(text)) continue;
    for (const [page, id] of places) {
      const title = titles[page] === heading ? heading : `${titles[page]} > ${heading}`;
      const anchor = id === null ? "" : `#${id}`;
      const score = heading.length + (docnames[page] === "notebooks/error_atlas" ? 1000 : 0);
      found.push([docnames[page], title, anchor, null, score, filenames[page]]);
    }
  }
  return found.sort((one, other) => one[4] - other[4]);
}

// The pages that have most of the words, the best last.
function pagesWithMost(words, excluded) {
  const found = new Map();
  for (const word of words) {
    for (const [page, title, , , , file] of Search.performTermsSearch(new Set([word]), excluded)) {
      const count = 1 + (found.get(page)?.[4] ?? 0);
      found.set(page, [page, title, "", null, count, file]);
    }
  }
  const most = [...found.values()].filter(([, , , , count]) => count >= (2 * words.size) / 3);
  return most.sort((one, other) => one[4] - other[4]);
}

// Before Sphinx begins to search: it waits for this event, too.
document.addEventListener("DOMContentLoaded", () => {
  const whole = Search._performSearch;
  Search._performSearch = (query, words, excluded, ...rest) => {
    const headings = headingsIn(query);
    const known = new Set(headings.map(([page, , anchor]) => page + anchor));
    let found = whole(query, words, excluded, ...rest);
    if (!found.length && words.size > 3) found = pagesWithMost(words, excluded);
    found = found.filter(([page, , anchor]) => !known.has(page + anchor));
    // Sphinx gives one score to all pages with one of the words in their title, however many of them.
    const asked = new Set(wordsOf(query));
    const inTitle = (title) => wordsOf(title).filter((word) => asked.has(word)).length;
    found.sort((one, other) => one[4] - other[4] || inTitle(one[1]) - inTitle(other[1]));
    return [...found, ...headings]; // Sphinx shows the last one first
  };
});
