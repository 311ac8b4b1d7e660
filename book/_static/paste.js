// "Paste your error": recognises the message and the reader's lines, asks the guide's questions, and
// ends with a repair.  Nothing is sent anywhere.

const form = document.querySelector(".paste");
const diagnosis = form.querySelector(".diagnosis");

function create(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Text of the guide and the atlas is HTML from the build; the reader's text is never parsed as HTML.
const html = (tag, innerHTML, properties) => create(tag, { innerHTML, ...properties });
const sentence = (text) => text[0].toUpperCase() + text.slice(1).replace(/(?<![.!?])$/, ".");

const LIBRARY =
  /site-packages|pydev|dist-packages|[\\/]torch[\\/]|(?:envs[\\/][^\\/]+|conda\w*|python[\d.]*)[\\/]lib[\\/]|lib[\\/]python3|_tensor\.py|autograd[\\/]__init__|<frozen|<string>/i;
const FRAME = /^\s*File "?([^"\n]+?)"?(?:, line |:)(\d+),? in (<[^>]*>|\S+)/;
const FILE = /^([\w/\\~.-]+\.py) in (<[^>]*>|\S+)/;
const CELL = /^(?:Cell |Input )?(In ?\[\d+\]|<ipython-input-[^>]*>)(?:.*?, line (\d+)| in (\S+))?/;
const isNotebook = (file) => CELL.test(file) || /ipykernel|ipython-input/.test(file);

// The text without colours, marks of Markdown, the addresses of Colab's links, and what a logger or a launcher
// writes before each line; the numbers in it, such as the time, may change.
function withoutMarks(text) {
  const clean = text
    .replace(/\x1b\[[\d;]*m/g, "")
    .replace(/^(?:\[\w*\d\](?:<\w+>)?:|[*_>]+(?=[A-Z ])) ?/gm, "")
    .replace(/\[([^\]\n]+\.py)\]\([^)\n]*\)/g, "$1");
  const [, prefix = ""] = /^(\S.*?)Traceback \(most recent call last/m.exec(clean) ?? [];
  const pattern = prefix.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\d+/g, "\\d+");
  return clean.replace(new RegExp(`^${pattern}`, "gm"), "");
}

// The reader's own frames, the outermost first: `{ file, number, where, text }`.
function framesIn(trace) {
  const frames = [];
  let current = null;
  for (const line of trace.split("\n")) {
    const [, file, number, where] = FRAME.exec(line) ?? CELL.exec(line) ?? FILE.exec(line) ?? [];
    const arrow = /^-+> *(\d+) (.*)/.exec(line);
    if (file)
      frames.push((current = { file, number: Number(number) || 0, where: where?.replace(/\(.*/, ""), text: "" }));
    else if (current && arrow) Object.assign(current, { number: Number(arrow[1]), text: arrow[2].trim() });
    else if (current && !current.text && !/^\s*[~^]*$/.test(line) && !/^\w*Error|^-|^ *\d+ /.test(line))
      current.text = line.trim();
  }
  const repeats = (frame, k) => frame.text === frames[k - 1]?.text && frame.number === frames[k - 1].number;
  return frames.filter(
    (frame, k) => !LIBRARY.test(frame.file) && !/\bforward(?:_call)?\(\*/.test(frame.text) && !repeats(frame, k),
  );
}

function places(frames) {
  const list = frames.map(({ file, number, where, text }) => {
    const name = file.split(/[\\/]/).at(-1);
    const place = [name, number && `line ${number}`, where && !where.startsWith("<") && `in ${where}`];
    return create("li", {}, `${place.filter(Boolean).join(", ")}: `, create("code", {}, text));
  });
  return list.length ? [create("p", {}, "Your lines:"), create("ul", {}, ...list)] : [];
}

// The evidence for an answer, of its own or of the answers to the question that it leads to.
function evidenceFor({ evidence = {}, answers = [] }, input) {
  const matching = evidence.script ? input.lines.filter(({ text }) => new RegExp(evidence.script).test(text)) : [];
  const facts = input.facts[evidence.fact] ?? [];
  const found = facts.length ? facts : matching.map((line) => ({ line }));
  const lines = found.filter(({ line }, index, all) => {
    const repeats = (other) =>
      other.number === line.number || (other.number > line.number && line.text.includes(other.text));
    return !all.slice(0, index).some((each) => repeats(each.line));
  });
  const quoted = evidence.message ? (new RegExp(evidence.message).exec(input.trace)?.[0] ?? "") : "";
  const weight = (lines.length ? 1 : 0) + (quoted ? 1 : 0);
  const further = Object.keys(evidence).length ? [] : answers.map((answer) => evidenceFor(answer, input));
  return further.find((each) => each.weight) ?? { lines, quoted, weight };
}

const quote = (words, text) => create("span", { className: "evidence" }, ` ${words}`, create("code", {}, text));

// Asks a question.  Once it is answered, by the reader or by clear evidence, only that answer is shown.
function ask(question, input, place) {
  const answers = question.answers.map((answer) => ({ answer, evidence: evidenceFor(answer, input) }));
  answers.sort((a, b) => b.evidence.weight - a.evidence.weight);
  const next = create("div");
  const change = create("button", { type: "button", className: "change" }, "Choose another answer");
  const set = create("fieldset", {}, html("legend", question.question), change);
  for (const each of answers) {
    const { lines, quoted } = each.evidence;
    each.button = html("button", each.answer.answer, { type: "button", ariaPressed: "false" });
    each.button.append(...lines.slice(0, 2).map(({ line }) => quote(`Line ${line.number}: `, line.text)));
    if (quoted) each.button.append(quote("The message says: ", quoted));
    each.button.addEventListener("click", () => choose(each));
    set.append(each.button);
  }
  function choose({ answer, evidence, button }) {
    for (const each of answers) each.button.ariaPressed = String(each.button === button);
    set.classList.add("answered");
    next.replaceChildren();
    if (answer.answers) ask(answer, input, next);
    else next.append(...repair(answer, evidence, input));
  }
  change.addEventListener("click", () => {
    set.classList.remove("answered");
    next.replaceChildren();
    answers[0].button.focus();
  });
  place.append(set, next);
  const [first, second] = answers;
  if (first.evidence.weight > (second?.evidence.weight ?? 0)) choose(first);
}

function repair(answer, evidence, input) {
  const [{ name, tuple } = {}] = evidence.lines;
  const code = (tuple && answer.tuple_code) || answer.code;
  return [
    create("p", { className: "repair holds" }, create("strong", {}, "Repair: "), html("span", sentence(answer.repair))),
    ...evidence.lines.slice(0, 3).map(({ line }) => create("p", {}, quote(`At your line ${line.number}: `, line.text))),
    ...(code && (name || !code.includes("NAME"))
      ? [create("pre", { tabIndex: 0 }, code.replaceAll("NAME", name))]
      : []),
    ...(answer.note ? [html("p", answer.note)] : []),
    html("p", `A program with this repair: <a href="${answer.example.url}">${answer.example.title}</a>.`),
    ...nextCommand(input),
  ];
}

// The command that names cause and lines in the reader's program.
function nextCommand({ frames }) {
  const script = (frames.find(({ where }) => where === "<module>") ?? frames[0])?.file ?? "";
  const name = /([\w.-]+\.py)$/.exec(script)?.[1] ?? "your_script.py";
  const [text, command] = isNotebook(script)
    ? ["In your notebook, run this cell first. Then run the failing cell again:", "%load_ext gradtrace"]
    : ["To find the lines in your program, run:", `python -m gradtrace --strict ${name}`];
  return [create("p", {}, text), create("pre", { tabIndex: 0 }, command)];
}

function diagnose() {
  const [trace, script] = [withoutMarks(form.elements.trace.value), form.elements.script.value];
  const frames = framesIn(trace);
  const inNotebook = frames.some(({ file }) => isNotebook(file));
  const facts = factsOf(script, frames.at(-1)?.text, inNotebook);
  const lines = [
    ...script.split("\n").map((text, index) => ({ number: index + 1, text: text.replace(/\s#.*/, "").trim() })),
    ...readLines(script).map(({ number, code }) => ({ number, text: code })), // over several lines of text
  ];
  const input = { trace, frames, facts, lines };
  const [entry] = entriesIn(trace);
  const family = entry && GUIDE.find(({ message }) => entry.wordings[0].includes(message));
  diagnosis.replaceChildren();
  if (entry) {
    diagnosis.append(
      create("p", {}, create("strong", {}, entry.wordings.find((each) => lengthIn(trace, each)) ?? entry.wordings[0])),
      ...places(frames),
      create("p", {}, create("strong", {}, "Cause: "), html("span", family?.meaning ?? entry.cause)),
    );
    const answer = { repair: entry.fix, example: { url: entry.url, title: "error atlas" } };
    if (family) ask(family, input, diagnosis);
    else diagnosis.append(...repair(answer, { lines: [] }, input));
  } else {
    const unknown = html(
      "p",
      "This text contains none of the known messages. <a>Search the site for it</a>, or choose what you see.",
    );
    unknown.querySelector("a").href = `search.html?q=${encodeURIComponent(trace.trim().split("\n").at(-1))}`;
    diagnosis.append(trace.trim() ? unknown : create("p", {}, "Paste your error above, or choose what you see."));
    const answers = GUIDE.map((each) => ({ ...each, answer: each.title ?? each.message }));
    ask({ question: "What do you see?", answers }, input, diagnosis);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  diagnose();
});
form.addEventListener("paste", () => setTimeout(diagnose)); // once the text is in the field
