// Sphinx keeps the words of a search until some page marks them.  Only the page that the reader opens
// from the results should: without that, the words are forgotten.
let opened = false;
for (const kind of ["click", "auxclick"]) {
  addEventListener(kind, (event) => (opened ||= Boolean(event.target.closest("#search-results a"))));
}
addEventListener("pagehide", () => opened || localStorage.removeItem("sphinx_highlight_terms"));
