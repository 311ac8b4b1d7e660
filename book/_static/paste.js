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

const LIBRARY = /site-packages|dist-packages|[\\/]torch[\\/]|lib[\\/]python3|<frozen|<string>/;
const FRAME = /^\s*File "?([^"\n]+?)"?(?:, line |:)(\d+),? in (\S+)/;
const CELL = /^(?:Cell |Input )?(In ?\[\d+\]|<ipython-input-[^>]*>)(?:.*?, line (\d+)| in (\S+))?/;

// The reader's own frames, the outermost first: `{ file, number, where, text }`.
function framesIn(trace) {
  const frames = [];
  let current = null;
  for (const line of trace.split("\n")) {
    const [, file, number, where] = FRAME.exec(line) ?? CELL.exec(line) ?? /^([\w/\\~.-]+\.py) in (\S+)/.exec(line) ?? [];
    const arrow = /^-+> *(\d+) (.*)/.exec(line);
    if (file) frames.push((current = { file, number: Number(number) || 0, where: where?.replace(/\(.*/, ""), text: "" }));
    else if (current && arrow) Object.assign(current, { number: Number(arrow[1]), text: arrow[2].trim() });
    else if (current && !current.text && !/^\s*[~^]*$/.test(line) && !/^\w*Error|^-|^ *\d+ /.test(line)) current.text = line.trim();
  }
  return frames.filter(({ file }) => !LIBRARY.test(file));
}

// The command that names cause and lines in the reader's program.
function command(frames) {
  const script = (frames.find(({ where }) => where === "<module>") ?? frames[0])?.file ?? "";
  if (CELL.test(script) || script.includes("ipykernel")) return "%load_ext gradtrace";
  const name = /([\w.-]+\.py)$/.exec(script)?.[1] ?? "your_script.py";
  return `python -m gradtrace --strict ${name}`;
}

function places(frames, facts) {
  const list = frames.map(({ file, number, where, text }) => {
    const name = file.split(/[\\/]/).at(-1);
    const place = [name, number && `line ${number}`, where && where !== "<module>" && `in ${where}`];
    return create("li", {}, `${place.filter(Boolean).join(", ")}: `, create("code", {}, text));
  });
  const [loop] = facts.loop ?? [];
  if (loop) list.push(create("li", {}, `The loop around it, line ${loop.line.number}: `, create("code", {}, loop.line.text)));
  return list.length ? [create("p", {}, "Your lines:"), create("ul", {}, ...list)] : [];
}

// The evidence for an answer, of its own or of the answers to the question that it leads to.
function evidenceFor({ evidence = {}, answers = [] }, input) {
  const lines = [
    ...(input.facts[evidence.fact] ?? []),
    ...(evidence.script ? input.lines.filter(({ text }) => new RegExp(evidence.script).test(text)) : []).map((line) => ({ line })),
  ];
  const quoted = evidence.message ? (new RegExp(evidence.message).exec(input.trace)?.[0] ?? "") : "";
  const further = answers.map((answer) => evidenceFor(answer, input)).filter(({ weight }) => weight);
  const own = (lines.length ? 1 : 0) + (quoted ? 1 : 0);
  return further.length && !own ? further[0] : { lines, quoted, weight: own };
}

const quote = (line) => create("span", { className: "evidence" }, ` Line ${line.number}: `, create("code", {}, line.text));

function ask(question, input, place) {
  const answers = question.answers.map((answer) => ({ answer, evidence: evidenceFor(answer, input) }));
  const most = Math.max(...answers.map(({ evidence }) => evidence.weight));
  const likely = answers.filter(({ evidence }) => most && evidence.weight === most);
  const next = create("div");
  const legend = html("legend", question.question);
  const buttons = answers.map(({ answer, evidence }) => {
    const button = html("button", answer.answer, { type: "button", ariaPressed: "false" });
    evidence.lines.slice(0, 2).forEach(({ line }) => button.append(quote(line)));
    if (evidence.quoted) button.append(create("span", { className: "evidence" }, " The message says: ", create("code", {}, evidence.quoted)));
    button.addEventListener("click", () => choose(answer, evidence, button));
    return button;
  });
  function choose(answer, evidence, button) {
    buttons.forEach((other) => (other.ariaPressed = String(other === button)));
    next.replaceChildren();
    if (answer.answers) ask(answer, input, next);
    else next.append(...repair(answer, evidence, input));
  }
  const sorted = answers.map((_, k) => k).sort((a, b) => answers[b].evidence.weight - answers[a].evidence.weight || a - b);
  place.append(create("fieldset", {}, legend, ...sorted.map((k) => buttons[k])), next);
  if (likely.length === 1) {
    legend.append(" Your text suggests the marked answer; choose another if it is wrong.");
    choose(likely[0].answer, likely[0].evidence, buttons[answers.indexOf(likely[0])]);
  }
}

function repair(answer, evidence, input) {
  const [{ line, name, tuple } = {}] = evidence.lines;
  const code = (tuple && answer.tuple_code) || answer.code;
  return [
    create("p", { className: "repair" }, create("strong", {}, "Repair: "), html("span", sentence(answer.repair))),
    ...(line ? [create("p", {}, "At your line:", quote(line))] : []),
    ...(code && (name || !code.includes("NAME")) ? [create("pre", { tabIndex: 0 }, code.replaceAll("NAME", name))] : []),
    ...(answer.note ? [html("p", answer.note)] : []),
    html("p", `A program with this repair: <a href="${answer.example.url}">${answer.example.title}</a>.`),
    ...certainty(input),
  ];
}

function certainty({ frames }) {
  const line = command(frames);
  const text = line.startsWith("%") ? "In your notebook, run this cell first. Then run the failing cell again:" : "To find the lines in your program, run:";
  return [create("p", {}, text), create("pre", { tabIndex: 0 }, line)];
}

function diagnose() {
  const [trace, script] = [form.elements.trace.value, form.elements.script.value];
  const frames = framesIn(trace);
  const facts = factsOf(script, frames.at(-1)?.text);
  const input = { trace, frames, facts, lines: readLines(script) };
  const [entry] = entriesIn(trace);
  const family = entry && GUIDE.find(({ message }) => entry.wordings[0].includes(message));
  diagnosis.replaceChildren();
  if (entry) diagnosis.append(html("h3", entry.wordings[0]), ...places(frames, facts));
  if (family) {
    diagnosis.append(create("p", {}, create("strong", {}, "Cause: "), html("span", family.meaning)));
    ask(family, input, diagnosis);
  } else if (entry) {
    diagnosis.append(
      create("p", {}, create("strong", {}, "Cause: "), html("span", entry.cause)),
      create("p", { className: "repair" }, create("strong", {}, "Repair: "), html("span", entry.fix)),
      html("p", `The smallest program that raises it, and its repair: <a href="${entry.url}">error atlas</a>.`),
      ...certainty(input),
    );
  } else {
    const search = create("a", { href: `search.html?q=${encodeURIComponent(trace.trim().split("\n").at(-1))}` }, "Search the site for it");
    diagnosis.append(create("p", {}, "This text contains none of the known messages. ", search, ", or choose what you see."));
    const answers = GUIDE.map((each) => ({ ...each, answer: each.title ?? each.message }));
    ask({ question: "What do you see?", answers }, input, diagnosis);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  diagnose();
});
form.addEventListener("paste", () => setTimeout(diagnose)); // once the text is in the field
