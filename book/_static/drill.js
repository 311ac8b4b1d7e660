// Makes a question of each program of the drill, one after another.  Without it all of them are
// there, with folded answers.

const programs = [...document.querySelectorAll(".drill")].map((drill) => ({
  drill,
  lines: [...drill.querySelectorAll("ol.program > li")].map((line) => line.textContent.trim()),
  freed: Number(/freed-(\d+)/.exec(drill.className)[1]),
}));

const tally = { asked: 0, right: 0 };

function code(text) {
  const element = document.createElement("code");
  element.textContent = text;
  return element;
}

function button(text, action) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.addEventListener("click", action);
  return element;
}

// What to say of a line that was chosen: whether it is right, and what that line does.
function said({ lines, freed }, chosen) {
  if (chosen === freed) {
    return [true, `Right. Line ${freed} freed what line ${lines.length} needs.`];
  }
  if (!lines[chosen - 1].includes(".backward(")) {
    return [false, `Not right: line ${chosen} frees nothing. Only a backward call does.`];
  }
  if (chosen === lines.length) {
    return [false, `Not right: line ${chosen} is where it raises. What it needs was freed before.`];
  }
  if (lines[chosen - 1].includes("retain_graph=True")) {
    return [false, `Not right: line ${chosen} kept what it went through.`];
  }
  return [false, `Not right: line ${chosen} freed something, but line ${lines.length} raises without that, too.`];
}

function question(program, number) {
  const { lines, freed, drill } = program;
  const form = document.createElement("form");
  const choices = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.textContent = `Program ${number} of ${programs.length}: line ${lines.length} raises. Which line freed what it needs?`;
  choices.append(legend);
  lines.forEach((line, index) => {
    const label = document.createElement("label");
    const radio = document.createElement("input");
    Object.assign(radio, { type: "radio", name: "line", value: index + 1 });
    label.append(radio, ` ${index + 1} `, code(line));
    choices.append(label);
  });
  const status = document.createElement("p");
  status.setAttribute("role", "status");
  let first = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = Number(new FormData(form).get("line"));
    if (!chosen) {
      status.textContent = "Choose a line.";
      return;
    }
    const [right, text] = said(program, chosen);
    if (first) {
      tally.asked += 1;
      tally.right += right ? 1 : 0;
      first = false;
    }
    status.textContent = `${right ? "✓" : "✗"} ${text} At the first try: ${tally.right} of ${tally.asked}.`;
  });
  const check = document.createElement("button");
  check.type = "submit";
  check.textContent = "Check";
  const next = button("Next program", () => show(number % programs.length, true));
  const actions = document.createElement("p");
  actions.append(check, " ", next);
  form.append(choices, actions, status, drill.querySelector("details"));
  return form;
}

let shown = programs[0].drill;
const made = programs.map((program, index) => question(program, index + 1));

function show(index, focus) {
  const form = made[index];
  form.reset();
  form.className = "drill";
  form.querySelector("details").open = false;
  form.querySelector("[role=status]").textContent = "";
  shown.replaceWith(form);
  shown = form;
  if (focus) form.querySelector("input").focus();
}

for (const { drill } of programs.slice(1)) drill.remove();
show(0, false);
