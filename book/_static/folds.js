// What tells the answer to a quiz is folded until there is one; the players open their own folds.

const quizzes = [...document.querySelectorAll("form.quiz")];

function answered(form) {
  const fold = document.querySelector(`details[data-observe="quiz ${quizzes.indexOf(form)}"]`);
  if (fold) fold.open = form.querySelector("input:checked") !== null;
}

quizzes.forEach(answered); // as it was kept in this browser
addEventListener("submit", ({ target }) => answered(target));
addEventListener("reset", ({ target }) => setTimeout(() => answered(target))); // once it is reset
