// Sorts and filters the table of claims.  Without it the table is whole and in the articles' order.

const table = document.querySelector("table.claims-table");
const body = table.tBodies[0];
const rows = [...body.rows];
const headings = [...table.tHead.rows[0].cells];
// The word without the mark before it.
const verdictOf = (row) => row.querySelector(".judged").textContent.replace(/^\S (?=\w)/, "");

// "1.10" comes after "1.9": numbers inside a text count as numbers.
const order = () => new Intl.Collator("en", { numeric: true }); // made when it is sorted: it takes long
const keys = [
  (row) => row.cells[0].textContent.trim(),
  (row) => row.cells[1].textContent.trim(),
  verdictOf,
];

function sort(column) {
  const heading = headings[column];
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of headings) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = keys[column];
  const { compare } = order();
  // Sorting is stable, so equal rows stay in the articles' order.
  const sorted = rows.toSorted((a, b) => compare(key(a), key(b)) * (descending ? -1 : 1));
  body.append(...sorted);
}

headings.forEach((heading, column) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = heading.textContent.trim();
  button.addEventListener("click", () => sort(column));
  heading.replaceChildren(button);
});

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
