// How search ranks: Sphinx's own scores, but explanations come before exercises, and solutions come last.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => score / ({ exercises: 100, solutions: 1000 }[page.split("/")[0]] ?? 1),
};
