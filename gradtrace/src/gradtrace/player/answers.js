// What readers answered, kept in their browser only, and the sum of it at a page's end.

import { element, marked, plural } from "./dom.js";

const STORE = "gradtrace.answers";

const key = (name) => `${location.pathname}#${name}`;

function stored() {
  try {
    return JSON.parse(localStorage.getItem(STORE)) ?? {};
  } catch {
    return {}; // no storage here, or not ours
  }
}

function store(all) {
  try {
    localStorage.setItem(STORE, JSON.stringify(all));
  } catch {
    // Without storage an answer lasts as long as the page.
  }
}

/** Return the stored answer, `{ answer: [id], right: bool, told: bool }`, or undefined. */
export const recall = (name) => stored()[key(name)];

export function remember(name, answered) {
  unfold(name, Boolean(answered));
  const all = stored();
  if (answered) all[key(name)] = answered;
  else delete all[key(name)];
  store(all);
  summarise();
}

/** Open or close the folds on the page that show the answer to a question. */
function unfold(name, open) {
  for (const fold of document.querySelectorAll("details[data-observe]"))
    if (fold.dataset.observe === name) fold.open = open;
}

/** Forget the answers that players in these places were given, and ask again. */
function forget(places) {
  for (const place of places) {
    remember(place.dataset.function, null);
    place.gradtrace?.ask();
  }
}

/** Write a summary of the answers into every `.gradtrace-answers` of the page. */
export function summarise() {
  const asked = [...document.querySelectorAll(".gradtrace[data-question]")];
  const all = stored();
  const answerIn = ({ dataset }) => all[key(dataset.function)];
  for (const place of asked) if (answerIn(place)) unfold(place.dataset.function, true);
  const item = (place) => {
    const { function: name, question } = place.dataset;
    const mark = answerIn(place) ? (answerIn(place).right ? "✓ " : "Look again: ") : "Not answered: ";
    return element("li", {}, mark, element("a", { href: `#play:${name}` }, ...marked(question)));
  };
  for (const place of document.querySelectorAll(".gradtrace-answers")) {
    const answered = asked.filter(answerIn);
    const right = answered.filter((place) => answerIn(place).right);
    const questions = plural(asked.length, "question");
    const sum = answered.length
      ? `You were right in ${right.length} of ${questions} on this page.`
      : `${questions} on this page, none answered yet.`;
    const parts = [element("p", {}, sum)];
    if (answered.length) {
      const again = element("button", { onclick: () => forget(asked) }, "Forget these answers");
      parts.push(element("ul", {}, ...asked.map(item)), again);
    }
    place.replaceChildren(...(asked.length ? parts : []));
  }
}
