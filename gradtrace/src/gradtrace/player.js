// Plays one trace: the source with the line that runs next, the graph, the bytes, the variables and
// the outcome. One module for every place: `default.render` is what anywidget calls in a live
// notebook, `mountAll` what a page without a kernel calls. All text from the program is set as text,
// never as HTML. Everything lives in a shadow root, so page and player cannot disturb each other.

const SVG = "http://www.w3.org/2000/svg";

const STYLE = `
:host { display: block; margin: 1rem 0; }
* { box-sizing: border-box; }
.player {
  --line: color-mix(in srgb, currentColor 55%, transparent);
  --faint: color-mix(in srgb, currentColor 9%, transparent);
  --blue: #3b7dd8; --green: #2f8f5b; --red: #d1483c; --amber: #b7791f;
  font: 14px/1.45 system-ui, sans-serif; border: 1px solid var(--line); border-radius: 6px;
  container-type: inline-size; color: inherit; text-align: start;
}
.controls { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; padding: .6rem .8rem;
  border-bottom: 1px solid var(--line); }
.controls:empty { display: none; }
.controls label { display: inline-flex; align-items: center; gap: .45rem; min-height: 24px; }
.controls code, .mono { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; }
.panels { display: grid; grid-template-columns: minmax(0, 1fr); }
@container (min-width: 640px) {
  .panels { grid-template-columns: minmax(0, 5fr) minmax(0, 6fr); }
  .graph { border-inline-start: 1px solid var(--line); }
}
.source, .graph { overflow: auto; max-height: 34rem; padding: .5rem 0; }
.source ol { list-style: none; margin: 0; padding: 0; }
.source li { display: flex; white-space: pre; padding-inline-end: .8rem; border-inline-start: 4px solid transparent; }
.source li .text { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 0; }
.source li .mark { width: 1.6em; text-align: center; flex: none; }
.source li .number { width: 2.2em; text-align: end; padding-inline-end: .9em; opacity: .75; flex: none; }
.source li.next { background: var(--faint); border-inline-start-color: var(--blue); }
.source li.error { background: var(--faint); border-inline-start-color: var(--red); font-weight: 600; }
.graph { padding: .5rem .8rem; }
.graph svg { display: block; margin: 0 auto; height: auto; }
.graph svg text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: currentColor; }
.graph rect { fill: var(--faint); stroke: currentColor; stroke-width: 1.2; }
.graph .freed rect { fill: none; stroke-dasharray: 5 4; }
.graph .modified rect { stroke: var(--amber); stroke-width: 2.4; }
.graph .stopped rect { stroke: var(--red); stroke-width: 3.2; stroke-dasharray: none; }
.graph .leaf rect { rx: 14px; }
.graph .new rect { stroke: var(--blue); stroke-width: 2.4; }
.graph .absent { display: none; }
.graph polyline { fill: none; stroke: var(--line); stroke-width: 1.2; }
.graph p { margin: .2rem 0 .6rem; }
.legend { font-size: 12px; }
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .8rem; padding: .5rem .8rem;
  border-block: 1px solid var(--line); }
.bar .buttons { display: flex; gap: .3rem; }
button { font: inherit; color: inherit; background: var(--faint); border: 1px solid var(--line);
  border-radius: 4px; min-width: 2.4rem; min-height: 2rem; cursor: pointer; }
button[aria-disabled=true] { opacity: .45; cursor: default; }
input, select { font: inherit; color: inherit; accent-color: var(--blue); }
input[type=checkbox] { width: 1.1rem; height: 1.1rem; }
select { background: transparent; border: 1px solid var(--line); border-radius: 4px; min-height: 1.8rem; }
select option { color: black; background: white; }
.bar input[type=range] { flex: 1 1 8rem; min-width: 6rem; }
:is(button, input, select, summary, [tabindex]):focus-visible { outline: 3px solid var(--blue); outline-offset: 2px; }
.bytes { display: flex; align-items: end; gap: .6rem; }
.bytes svg { width: 130px; height: 32px; }
.bytes rect { fill: var(--line); }
.bytes rect.now { fill: var(--blue); }
.tables { padding: .5rem .8rem; overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin: 0; width: auto; }
caption { text-align: start; font-weight: 600; padding-bottom: .2rem; }
th, td { text-align: start; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--faint); }
td:first-child { font-weight: 600; }
.outcome { padding: .6rem .8rem; overflow-wrap: anywhere; border-inline-start: 4px solid var(--green); margin: 0; }
.outcome.failed { border-inline-start-color: var(--red); }
.outcome p { margin: 0 0 .3rem; }
details { padding: .3rem .8rem; border-block: 1px solid var(--line); }
summary { cursor: pointer; min-height: 24px; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
@media print { .bar .buttons, .bar input { display: none; } .source, .graph { max-height: none; } }
`;

const GLYPHS = { alive: "■", freed: "□", modified: "▲", packed: "◧", "not needed": "·" };

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const bytes = (count) => `${count.toLocaleString("en-US")} B`;
const dimensions = (sizes) => (sizes.length ? `[${sizes.join(", ")}]` : "scalar");

/** Undo the compact form of a trace: the states of all nodes at each step. */
function unpack(trace) {
  const states = new Map();
  return trace.steps.map((step) => {
    for (const index of step.changed) states.set(trace.rows[index][0], trace.rows[index]);
    for (const node of step.gone) states.delete(node);
    return new Map(states);
  });
}

class View {
  constructor(host, onStep) {
    this.root = host.attachShadow({ mode: "open" });
    this.onStep = onStep;
    this.controls = element("div", { class: "controls" });
    this.source = element("div", { class: "source mono", tabindex: "0", role: "group", "aria-label": "Source code" });
    this.graph = element("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Autograd graph" });
    this.twin = element("div", { class: "mono" });
    this.first = this.button("|◀", "First step", () => this.go(0));
    this.back = this.button("◀", "Step back", () => this.go(this.step - 1));
    this.next = this.button("▶", "Step forward", () => this.go(this.step + 1));
    this.last = this.button("▶|", "Last step", () => this.go(Infinity));
    this.scrubber = element("input", {
      type: "range", min: "0", "aria-label": "Step", oninput: () => this.go(Number(this.scrubber.value)),
    });
    this.position = element("span");
    this.chart = element("div", { class: "bytes" });
    this.status = element("div", { class: "unseen", role: "status", "aria-live": "polite" });
    this.tables = element("div", { class: "tables", tabindex: "0", role: "group", "aria-label": "Variables" });
    this.outcome = element("div", { class: "outcome" });
    const style = element("style");
    style.textContent = STYLE;
    this.box = element(
      "section",
      { class: "player", onkeydown: (event) => this.key(event) },
      this.controls,
      element("div", { class: "panels" }, this.source, this.graph),
      element(
        "div", { class: "bar" },
        element("div", { class: "buttons" }, this.first, this.back, this.next, this.last),
        this.scrubber, this.position, this.chart,
      ),
      this.outcome,
      element("details", {}, element("summary", {}, "The graph in words"), this.twin),
      this.tables, this.status,
    );
    this.root.append(style, this.box);
  }

  button(text, label, onclick) {
    return element("button", { type: "button", "aria-label": label, title: label, onclick }, text);
  }

  key(event) {
    const target = event.composedPath()[0];
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|SUMMARY)$/.test(target.tagName)) return;
    const scrolls = target === this.graph || target === this.source || target === this.tables;
    const to = { ArrowLeft: this.step - 1, ArrowRight: this.step + 1, Home: 0, End: Infinity }[event.key];
    if (to === undefined || (scrolls && target.scrollWidth > target.clientWidth)) return;
    event.preventDefault();
    event.stopPropagation();
    this.go(to);
  }

  /** Move to a step because the reader asked for it. */
  go(step) {
    this.show(step);
    this.onStep?.(this.step);
  }

  setTrace(trace, step) {
    this.trace = trace;
    this.box.setAttribute("aria-label", `Line player: ${trace.function}`);
    this.states = unpack(trace);
    this.scrubber.max = trace.steps.length - 1;
    this.boxOf = new Map(trace.layout.boxes.flatMap((box, i) => box.nodes.map((node) => [node, i])));
    this.lines = new Map();
    const list = element("ol");
    for (const [number, text] of Object.entries(trace.source)) {
      const mark = element("span", { class: "mark" });
      const item = element("li", {}, mark, element("span", { class: "number" }, number), element("span", { class: "text" }, text || " "));
      this.lines.set(Number(number), { item, mark });
      list.append(item);
    }
    this.source.replaceChildren(list);
    this.drawGraph();
    const failed = trace.error !== null;
    this.outcome.className = failed ? "outcome failed" : "outcome";
    this.outcome.replaceChildren(...trace.outcome.map((text, i) =>
      element("p", {}, i === 0 ? element("strong", {}, failed ? "✗ " : "✓ ") : "", text)));
    this.show(step);
  }

  /** Draw every box once; `show` only changes classes and texts. */
  drawGraph() {
    const { boxes, edges, width, height } = this.trace.layout;
    this.drawn = [];
    this.edges = [];
    // A drawing that is somewhat too wide shrinks, as long as its text stays readable; then it scrolls.
    const fit = `width: clamp(${0.8 * (width + 4)}px, 100%, ${width + 4}px)`;
    const svg = (this.svg = shape("svg", { style: fit, viewBox: `-2 -2 ${width + 4} ${height + 4}`, "aria-hidden": "true" }));
    svg.append(shape("defs", {}, shape("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" },
      shape("path", { d: "M0 0L8 4L0 8z", fill: "currentColor" }))));
    for (const { start, end, bends } of edges) {
      const [a, b] = [boxes[start], boxes[end]];
      const points = [[a.x + a.width / 2, a.y], ...bends, [b.x + b.width / 2, b.y + b.height + 1]];
      const line = shape("polyline", { points: points.map((point) => point.join()).join(" "), "marker-end": "url(#arrow)" });
      this.edges.push({ line, start, end });
      svg.append(line);
    }
    boxes.forEach((box) => {
      const rows = box.nodes.length > 1 ? 1 : this.trace.nodes[box.nodes[0]].slots.filter((slot) => !slot.empty).length;
      const texts = Array.from({ length: rows + 1 }, (_, i) => shape("text", { x: box.x + 8, y: box.y + 20 + 16 * i }));
      const group = shape("g", {}, shape("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 3 }), ...texts);
      this.drawn.push({ group, texts });
      svg.append(group);
    });
    this.empty = element("p", {}, "No graph: no live variable has one.");
    const legend = element("p", { class: "legend" },
      "Arrows: the way backward runs. ■ saved and alive, □ freed, ▲ changed in place since it was saved, dashed: freed node.");
    this.graph.replaceChildren(this.empty, svg, legend);
  }

  show(step) {
    const { trace } = this;
    this.step = Math.max(0, Math.min(step, trace.steps.length - 1));
    const now = trace.steps[this.step];
    const states = this.states[this.step];
    const before = this.step ? this.states[this.step - 1] : new Map();
    const atEnd = now.line === null;
    this.scrubber.value = this.step;
    // Not `disabled`: that would take the focus, and with it the keyboard, away.
    const ends = this.step === trace.steps.length - 1;
    for (const button of [this.first, this.back]) button.setAttribute("aria-disabled", this.step === 0);
    for (const button of [this.next, this.last]) button.setAttribute("aria-disabled", ends);

    const failed = now.raised?.line ?? null;
    for (const [number, { item, mark }] of this.lines) {
      const isNext = number >= now.line && now.line !== null && number <= (trace.statements[now.line] ?? now.line);
      item.className = number === failed ? "error" : isNext ? "next" : "";
      mark.textContent = number === failed ? "✗" : number === now.line ? "▶" : number === now.ran ? "✓" : "";
    }
    const where = atEnd ? "end" : `before line ${now.line}`;
    this.position.textContent = `step ${this.step + 1} of ${trace.steps.length}: ${where}`;
    this.scrubber.setAttribute("aria-valuetext", this.position.textContent);

    this.showGraph(now, states, before);
    this.showBytes(now);
    this.showVariables(now);
    const current = this.lines.get(now.line ?? failed ?? now.ran)?.item;
    if (current && this.source.scrollHeight > this.source.clientHeight) {
      this.source.scrollTop = current.offsetTop - this.source.clientHeight / 2;
    }
    this.announce(now, states, before, where);
  }

  slots(node, row) {
    const known = this.trace.nodes[node].slots;
    return known
      .map((slot, i) => ({ ...slot, state: row[2][i][0], now: row[2][i][1] }))
      .filter((slot) => !slot.empty);
  }

  showGraph(now, states, before) {
    const { boxes } = this.trace.layout;
    const stopped = now.raised?.node ?? null;
    const changed = [...states.values()].filter((row) => before.get(row[0])?.[1] !== row[1]).map((row) => row[0]);
    this.bringIntoView(stopped ?? changed.at(-1));
    this.empty.hidden = states.size > 0;
    boxes.forEach((box, i) => {
      const { group, texts } = this.drawn[i];
      const present = box.nodes.filter((node) => states.has(node));
      if (!present.length) {
        group.setAttribute("class", "absent");
        return;
      }
      const count = (state) => present.filter((node) => states.get(node)[1] === state).length;
      const classes = [];
      if (box.leaf) classes.push("leaf");
      if (present.includes(stopped)) classes.push("stopped");
      else if (count("freed")) classes.push("freed");
      else if (count("modified")) classes.push("modified");
      else if (present.some((node) => !before.has(node))) classes.push("new");
      if (count("freed") && !classes.includes("freed")) classes.push("freed");
      group.setAttribute("class", classes.join(" "));
      if (box.nodes.length > 1) {
        texts[0].textContent = box.title;
        texts[1].textContent = box.leaf ? `${present.length} here` : `${present.length - count("freed")} alive, ${count("freed")} freed`;
        return;
      }
      const row = states.get(present[0]);
      const word = present[0] === stopped ? "  ✗ stopped" : row[1] === "freed" ? "  freed" : "";
      texts[0].textContent = box.title + word;
      this.slots(present[0], row).forEach((slot, k) => {
        const size = slot.state === "freed" || slot.nbytes === null ? "" : `  ${bytes(slot.nbytes)}`;
        texts[k + 1].textContent = `${GLYPHS[slot.state]} ${slot.name}${size}  ${slot.state}`;
      });
    });
    for (const { line, start, end } of this.edges) {
      const visible = [start, end].every((i) => boxes[i].nodes.some((node) => states.has(node)));
      line.setAttribute("class", visible ? "" : "absent");
    }
    const items = [...states.values()].map((row) => element("li", {}, this.describe(row, stopped)));
    this.twin.replaceChildren(items.length ? element("ul", {}, ...items) : element("p", {}, this.empty.textContent));
  }

  /** Scroll a drawing that is larger than its panel to where something happens. */
  bringIntoView(node) {
    const box = this.trace.layout.boxes[this.boxOf.get(node)];
    if (!box) return;
    const drawing = this.svg.getBoundingClientRect();
    const panel = this.graph.getBoundingClientRect();
    const scale = drawing.width / (this.trace.layout.width + 4);
    this.graph.scrollLeft += drawing.left + (box.x + box.width / 2) * scale - panel.left - panel.width / 2;
    this.graph.scrollTop += drawing.top + (box.y + box.height / 2) * scale - panel.top - panel.height / 2;
  }

  /** One node in words, for those who do not see the drawing. */
  describe(row, stopped) {
    const node = this.trace.nodes[row[0]];
    const parts = [node.leaf ? `${node.label}, a leaf` : node.name];
    if (node.line !== null && !node.leaf) parts.push(`made on line ${node.line}`);
    if (node.next.length) parts.push(`backward goes on to ${node.next.map((i) => this.trace.nodes[i].label).join(" and ")}`);
    for (const slot of this.slots(row[0], row)) {
      const what = slot.shape ? ` (${dimensions(slot.shape)} ${slot.dtype}, ${bytes(slot.nbytes)})` : "";
      const versions = slot.state === "modified" ? `, version ${slot.now}, saved at version ${slot.version}` : "";
      parts.push(`saved ${slot.name}${what}: ${slot.state}${versions}`);
    }
    if (row[1] === "hidden") parts.push("what it saves cannot be seen from Python");
    if (row[1] === "freed" && !this.slots(row[0], row).length) parts.push("freed");
    if (row[0] === stopped) parts.push("backward stopped here");
    return parts.join("; ");
  }

  showBytes(now) {
    const held = this.trace.steps.map((step) => step.held[0]);
    const most = Math.max(...held, 1);
    const width = 130 / held.length;
    const bars = held.map((count, i) => {
      const height = count ? Math.max(2, (28 * count) / most) : 0.5;
      return shape("rect", {
        x: i * width, y: 31 - height, width: Math.max(width - 1, 0.5), height, class: i === this.step ? "now" : "",
      });
    });
    const others = now.held[1] + now.held[2];
    const also = others ? ` (+ ${bytes(others)} of parameters and inputs)` : "";
    this.chart.replaceChildren(
      shape("svg", { viewBox: "0 0 130 32", "aria-hidden": "true" }, ...bars),
      element("span", {}, `held by saved tensors: ${bytes(now.held[0])}${also}`),
    );
  }

  showVariables(now) {
    const yes = (truth) => (truth ? "yes" : "no");
    const head = ["name", "shape", "requires_grad", "leaf", "version", "grad"];
    const rows = now.variables.map((index) => this.trace.rows[index]).map(([name, size, requires, leaf, version, grad]) =>
      element("tr", {}, ...[name, dimensions(size), yes(requires), yes(leaf), version ?? "–", grad ?? "none"].map((text) => element("td", {}, String(text)))));
    const values = now.values.map(([name, value]) => `${name} = ${value}`).join(", ");
    const table = element("table", { class: "mono" },
      element("caption", {}, "Live tensors"),
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...rows));
    this.tables.replaceChildren(
      rows.length ? table : element("p", { style: "margin:0" }, "No live tensors yet."),
      ...(values ? [element("p", { class: "mono", style: "margin:.3rem 0 0" }, values)] : []),
    );
  }

  announce(now, states, before, where) {
    const names = (list) => list.map((node) => this.trace.nodes[node].label).join(", ");
    const freed = [...states.values()].filter((row) => row[1] === "freed" && before.get(row[0])?.[1] !== "freed").map((row) => row[0]);
    const made = [...states.keys()].filter((node) => !before.has(node) && !this.trace.nodes[node].leaf);
    const parts = [`Step ${this.step + 1}, ${where}. ${bytes(now.held[0])} held.`];
    if (made.length) parts.push(`New: ${names(made)}.`);
    if (freed.length) parts.push(`Freed: ${names(freed)}.`);
    if (now.raised) parts.push(`Line ${now.raised.line} raised ${now.raised.type}.`);
    this.status.textContent = parts.join(" ");
  }
}

/** Controls of a page without a kernel: native HTML, one trace for each setting. */
function staticControls(data, onChange) {
  const chosen = [...data.initial];
  const changed = (i, option) => {
    chosen[i] = option;
    onChange(data.controls.reduce((index, control, k) => index * control.options.length + chosen[k], 0));
  };
  return data.controls.map((control, i) => {
    const name = element("code", {}, control.name);
    if (control.kind === "checkbox") {
      const box = element("input", { type: "checkbox", onchange: () => changed(i, Number(box.checked)) });
      box.checked = chosen[i] === 1;
      return element("label", {}, box, name);
    }
    if (control.kind === "select") {
      const select = element("select", { onchange: () => changed(i, select.selectedIndex) },
        ...control.options.map((text) => element("option", {}, text)));
      select.selectedIndex = chosen[i];
      return element("label", {}, name, select);
    }
    const output = element("output", {}, control.options[chosen[i]]);
    const range = element("input", {
      type: "range", min: 0, max: control.options.length - 1,
      oninput: () => {
        output.textContent = control.options[range.value];
        range.setAttribute("aria-valuetext", output.textContent);
        changed(i, Number(range.value));
      },
    });
    range.value = chosen[i];
    range.setAttribute("aria-valuetext", output.textContent);
    return element("label", {}, name, range, output);
  });
}

function mountAll() {
  for (const place of document.querySelectorAll(".gradtrace:not([data-mounted])")) {
    const stored = place.querySelector('script[type="application/json"]');
    if (!stored) continue;
    place.dataset.mounted = "";
    const data = JSON.parse(stored.textContent);
    const view = new View(place.firstElementChild);
    const play = (index) => view.setTrace(data.traces[index], Infinity);
    view.controls.append(...staticControls(data, play));
    play(data.controls.reduce((index, control, k) => index * control.options.length + data.initial[k], 0));
  }
}

export default {
  render({ model, el }) {
    const host = document.createElement("div");
    el.append(host);
    const view = new View(host, (step) => {
      model.set("step", step);
      model.save_changes();
    });
    const onTrace = () => view.setTrace(model.get("trace"), model.get("step"));
    const onStep = () => view.step !== model.get("step") && view.show(model.get("step"));
    model.on("change:trace", onTrace);
    model.on("change:step", onStep);
    onTrace();
    return () => {
      model.off("change:trace", onTrace);
      model.off("change:step", onStep);
    };
  },
};
