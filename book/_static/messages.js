// Recognises a pasted error by the wordings in the error atlas.  Shapes, versions and names in a message
// are the reader's own, so the words of a wording may have a few others between them.

const wordsOf = (text) => text.toLowerCase().match(/[a-z0-9]+/g) ?? [];
const GAP = "(?: [a-z0-9]+){0,6}? ";
const RAISED = /^(?:[\w.]*(?:Error|Exception|Warning)|.*\bWarning): .*(?:\n(?!\s|$).*)*/gm;

// The answers of the guide that are about one of several atlas entries with the same message.
const VARIANTS = GUIDE.flatMap(({ answers }) => answers.filter(({ entry }) => entry));

// How much of a wording the text contains: all, the beginning of a message cut short, or nothing.
function lengthIn(text, wording) {
  const [words, whole] = [wordsOf(text).join(" "), wordsOf(wording)];
  const contains = (part) => new RegExp(part.join(GAP)).test(words);
  const beginning = whole.slice(0, Math.max(6, Math.ceil(whole.length / 2)));
  return contains(whole) ? wording.length : contains(beginning) ? beginning.length : 0;
}

function entriesWithin(text) {
  const suggested = VARIANTS.filter(({ evidence }) => new RegExp(evidence.message).test(text));
  return ATLAS.map((entry, index) => {
    const variant = suggested.findIndex((answer) => answer.entry === entry.url) + 1;
    return { entry, length: Math.max(...entry.wordings.map((wording) => lengthIn(text, wording))), variant, index };
  })
    .filter(({ length }) => length)
    .sort((a, b) => b.length - a.length || b.variant - a.variant || a.index - b.index)
    .map(({ entry }) => entry);
}

// The entries of the atlas whose message the text contains: those of the last error first.
function entriesIn(text) {
  const raised = (text.match(RAISED) ?? []).reverse().flatMap(entriesWithin);
  return [...new Set([...raised, ...entriesWithin(text)])];
}
