// What tells an answer is folded.  A link into a fold opens it, and so does an answer to the quiz above;
// the players open theirs themselves.

const CLOSED = "details:not([open])";

function reveal({ hash }) {
  const target = document.getElementById(decodeURIComponent(hash.slice(1)));
  let fold = target?.closest(CLOSED);
  if (!fold) return;
  for (; fold; fold = fold.parentElement.closest(CLOSED)) fold.open = true;
  target.scrollIntoView();
}

reveal(location);
addEventListener("hashchange", () => reveal(location));
addEventListener("click", ({ target }) => {
  const link = target.closest("a[href^='#']"); // also that to where one is
  if (link) reveal(link);
});

const quizzes = [...document.querySelectorAll("form.quiz")];

function answered(form) {
  const fold = document.querySelector(`details[data-observe="quiz ${quizzes.indexOf(form)}"]`);
  if (fold) fold.open = form.querySelector("input:checked") !== null;
}

quizzes.forEach(answered); // as it was kept in this browser
addEventListener("submit", ({ target }) => answered(target));
addEventListener("reset", ({ target }) => setTimeout(() => answered(target))); // once it is reset
