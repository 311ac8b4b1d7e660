// How search ranks: Sphinx's own scores, but a solution comes after everything that gives nothing away.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) => (page.startsWith("solutions/") ? score / 1000 : score),
};
