// Filters the table of claims.  Without it the table is whole.

const table = document.querySelector("table.claims-table");
const body = table.tBodies[0];
const rows = [...body.rows];
// The word without the mark before it.
const verdictOf = (row) => row.querySelector(".judged").textContent.replace(/^\S (?=\w)/, "");

function labelled(text, control) {
  const label = document.createElement("label");
  label.append(text, control);
  return label;
}

function choice(all, values) {
  const select = document.createElement("select");
  select.append(new Option(all, ""), ...values.map((value) => new Option(value, value)));
  return select;
}

const chapterOf = (row) => row.cells[0].textContent.trim().split(".")[0];
const chapter = choice("all", [...new Set(rows.map(chapterOf))]);
const verdict = choice("all", [...new Set(rows.map(verdictOf))].sort());
const words = document.createElement("input");
words.type = "search";
const count = document.createElement("span");
count.setAttribute("role", "status");

function filter() {
  const sought = words.value.trim().toLowerCase();
  for (const row of rows) {
    row.hidden = Boolean(
      (chapter.value && chapterOf(row) !== chapter.value) ||
      (verdict.value && verdictOf(row) !== verdict.value) ||
      !row.textContent.toLowerCase().includes(sought),
    );
  }
  count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
}

const form = document.createElement("form");
form.className = "claims-filter";
form.setAttribute("aria-label", "Filter the claims");
form.append(labelled("Chapter", chapter), labelled("Verdict", verdict), labelled("Words", words), count);
form.addEventListener("input", filter);
form.addEventListener("submit", (event) => event.preventDefault());
document.querySelector(".claims-filter").replaceWith(form);
filter();
