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

/** Forget the answers to the questions `asked`, and ask them again. */
function forget(asked) {
  for (const [place, name] of asked) {
    remember(name, null);
    place.gradtrace?.ask();
  }
}

/** Write a summary of the answers into every `.gradtrace-answers` of the page. */
export function summarise() {
  /** @type {[Element, string, string][]} */
  const asked = [...document.querySelectorAll(".gradtrace[data-question]")].map((place) => [
    place,
    place.dataset.function,
    place.dataset.question,
  ]);
  const all = stored();
  for (const [, name] of asked) if (all[key(name)]) unfold(name, true);
  const item = ([, name, prompt]) => {
    const mark = all[key(name)] ? (all[key(name)].right ? "✓ " : "Look again: ") : "Not answered: ";
    return element("li", {}, mark, element("a", { href: `#play:${name}` }, ...marked(prompt)));
  };
  for (const place of document.querySelectorAll(".gradtrace-answers")) {
    const answered = asked.filter(([, name]) => all[key(name)]);
    const right = answered.filter(([, name]) => all[key(name)].right);
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
