// Search as people ask: a pasted message finds its entry in the error atlas (messages.js), a question the
// page that has most of its words where none has all, and explanations come before exercises.

// The pages that have most of the words, the best last.
function pagesWithMost(words, excluded) {
  const pages = new Map();
  for (const word of words) {
    for (const [page, title, , , , file] of Search.performTermsSearch(new Set([word]), excluded)) {
      const count = 1 + (pages.get(page)?.[4] ?? 0);
      pages.set(page, [page, title, "", null, count, file]);
    }
  }
  const most = [...pages.values()].filter(([, , , , count]) => count >= (2 * words.size) / 3);
  return most.sort((one, other) => one[4] - other[4]);
}

// An entry of the atlas as Sphinx shows a result.
function resultFor({ heading, url }) {
  const { docnames, filenames, titles } = Search._index;
  const page = docnames.indexOf("notebooks/error_atlas");
  const plain = new DOMParser().parseFromString(heading, "text/html").body.textContent;
  return [docnames[page], `${titles[page]} > ${plain}`, url.slice(url.indexOf("#")), null, 1000, filenames[page]];
}

// Before Sphinx begins to search: it waits for this event, too.
document.addEventListener("DOMContentLoaded", () => {
  Scorer.score = ([page, , , , score]) => score / ({ exercises: 100, solutions: 1000 }[page.split("/")[0]] ?? 1);
  const whole = Search._performSearch;
  Search._performSearch = (query, words, excluded, ...rest) => {
    const entries = entriesIn(query).map(resultFor).reverse();
    const asked = new Set(wordsOf(query));
    const place = ([page, , anchor]) => page + anchor;
    const known = new Set(entries.map(place));
    let results = whole(query, words, excluded, ...rest);
    if (!results.length && words.size > 3) results = pagesWithMost(words, excluded);
    results = results.filter((result) => !known.has(place(result)));
    // Sphinx gives one score to all pages with one of the words in their title, however many of them.
    const inTitle = (title) => wordsOf(title).filter((word) => asked.has(word)).length;
    results.sort((one, other) => one[4] - other[4] || inTitle(one[1]) - inTitle(other[1]));
    return [...results, ...entries]; // Sphinx shows the last one first
  };
});
