// Answers a quiz: a reply to each choice, the sum, kept in this browser until it is reset.  Without it
// the page shows the questions and, folded, their answers.

(function (form) {
  const questions = [...form.querySelectorAll("fieldset")];
  const sum = form.querySelector("[role=status]");
  const number = [...document.querySelectorAll("form.quiz")].indexOf(form);
  const place = `backward-twice.quiz:${location.pathname}#${number}`;

  // A page may be shown where nothing can be stored.
  function stored(change) {
    try {
      return change(localStorage);
    } catch {
      return null;
    }
  }

  function reply(question) {
    const chosen = question.querySelector("input:checked");
    for (const text of question.querySelectorAll("[data-reply]")) text.hidden = true;
    if (!chosen) return null;
    const text = question.querySelector(`[data-reply="${chosen.value}"]`);
    text.hidden = false;
    return "right" in text.dataset;
  }

  function check() {
    const results = questions.map(reply);
    const again = results.flatMap((right, i) => (right === false ? [i + 1] : []));
    const open = results.flatMap((right, i) => (right === null ? [i + 1] : []));
    const parts = [`${results.filter(Boolean).length} of ${results.length}.`];
    if (again.length) parts.push(`Look again at ${again.join(", ")}.`);
    if (open.length) parts.push(`Not answered: ${open.join(", ")}.`);
    const alone = open.length ? "Not answered." : "";
    sum.textContent = results.length > 1 ? parts.join(" ") : alone;
    const chosen = questions.map((question) => question.querySelector("input:checked")?.value ?? null);
    stored((storage) => storage.setItem(place, JSON.stringify(chosen)));
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    check();
  });
  form.addEventListener("reset", () => {
    for (const text of form.querySelectorAll("[data-reply]")) text.hidden = true;
    sum.textContent = "";
    stored((storage) => storage.removeItem(place));
  });

  form.querySelector("details").remove();
  form.querySelector(".actions").hidden = false;
  const before = JSON.parse(stored((storage) => storage.getItem(place)) ?? "[]");
  before.forEach((value, i) => {
    const choice = value === null ? null : questions[i]?.querySelector(`input[value="${value}"]`);
    if (choice) choice.checked = true;
  });
  if (before.some((value) => value !== null)) check();
})(document.currentScript.closest("form"));
