// The player: one step of a program seen four ways (source, graph, bytes, variables) that light each other up.

import { recall, remember } from "./answers.js";
import { Bar } from "./bar.js";
import { drawControls, traceOf } from "./controls.js";
import { element } from "./dom.js";
import { Edits, unedited } from "./edits.js";
import { Graph } from "./graph.js";
import { Inside } from "./inside.js";
import { Memory } from "./memory.js";
import { MARGIN } from "./panel.js";
import { Question } from "./question.js";
import { Source, deeds } from "./source.js";
import { STYLE } from "./style.js";
import { Timeline } from "./timeline.js";
import { Variables } from "./variables.js";
import { announcement, twin } from "./words.js";

const LONG = 18; // lines of a program that is set more tightly
const BESIDE_CODE = 18; // characters beside a line of code: its number, and what it did
const NOTHING = { lines: new Set(), nodes: new Set(), tensors: new Set(), names: new Set() };

export class Player {
  /**
   * `data` is that of a page: controls, initial, traces, step, question. A live notebook gives
   * `hooks`: `onStep(step)`, `onAnswer(ids)`, `onSetting(setting)` unless the controls are the
   * notebook's own, and `onSource(text)` where Python can run a program that the reader writes.
   */
  constructor(host, data, hooks = {}) {
    this.root = host.attachShadow({ mode: "open" });
    this.host = host;
    this.data = data;
    this.hooks = hooks;
    this.choices = data.controls; // a kernel may have more options
    this.setting = [...data.initial];
    this.build();
    if (data.question) this.askFirst();
    this.setTrace(data.traces[traceOf(data.controls, this.setting)]);
    this.show(this.opening());
  }

  /** Return the step at which the player opens: the page's, else one that shows the nodes or tensors to choose, else 0. */
  opening() {
    const { step, question } = this.data;
    if (step != null) return this.timeline.find(typeof step === "object" ? step : { step }) ?? 0;
    return this.locked && (question.kind === "node" || question.kind === "tensor") ? question.at : 0;
  }

  build() {
    this.source = new Source(this);
    this.graph = new Graph(this);
    this.memory = new Memory(this);
    this.variables = new Variables(this);
    this.controls = element("div", { class: "controls" });
    this.asking = element("div", { class: "asking" });
    this.bar = new Bar(this);
    this.outcome = element("div", { class: "outcome" });
    this.twin = element("div", { class: "twin mono" });
    const summary = element("summary", {}, "The graph in words");
    this.words = element("details", { ontoggle: () => this.showTwin() }, summary, this.twin);
    this.status = element("div", { class: "unseen", role: "status" });
    this.top = element("div", { class: "top" }, this.controls);
    const parts = [this.asking, this.top, this.source.box, this.graph.box, this.bar.box];
    this.desk = element("div", { class: "desk" }, ...parts);
    this.box = element(
      "section",
      { class: "player", onkeydown: (event) => this.bar.key(event) },
      this.desk,
      this.memory.box,
      element("div", { class: "outcome-place" }, this.outcome),
      this.variables.box,
      this.words,
      this.status,
    );
    const style = element("style");
    style.textContent = STYLE;
    this.theme(); // before there is much to lay out
    this.root.append(style, this.box);
    this.host.dataset.built = "";
  }

  /** Set a light or dark theme by the colour of the page's text, which the page may change at any time. */
  theme() {
    const [red, green, blue] = getComputedStyle(this.host)
      .color.match(/[\d.]+/g)
      ?.map(Number) ?? [0, 0, 0];
    this.host.dataset.theme = this.box.dataset.theme = 0.3 * red + 0.6 * green + 0.1 * blue > 140 ? "dark" : "light";
  }

  askFirst() {
    const { question, controls } = this.data;
    this.question = new Question(question, this);
    this.asking.append(this.question.box);
    const before = this.live ? undefined : recall(this.function);
    this.recalled = Boolean(before);
    if (before) this.question.restore(before);
    if (this.question.open && controls.length) this.setting = [...question.setting];
  }

  get function() {
    return this.data.traces[0].function;
  }

  get live() {
    return this.hooks.onAnswer !== undefined;
  }

  /** Whether the player draws the controls: always on a page; in a live notebook, if it may set them. */
  get steers() {
    return !this.live || this.hooks.onSetting !== undefined;
  }

  /** Whether the page stores the trace of a setting. */
  stores(setting) {
    return this.data.controls.every(({ options }, k) => setting[k] < options.length && setting[k] !== null);
  }

  get locked() {
    return Boolean(this.question?.open);
  }

  get where() {
    if (this.place) return `line ${this.inside.line}, node ${this.place} of ${this.inside.last}`;
    const { line } = this.trace.steps[this.step];
    return line === null ? "end" : `before line ${line}`;
  }

  get limit() {
    return this.locked ? Math.min(this.data.question.at, this.timeline.last) : this.timeline.last;
  }

  /** Forget the answer, open the question again and go to the step at which the player opens. */
  ask() {
    this.keep(null);
    this.question?.reopen();
    if (this.data.controls.length) this.choose([...this.data.question.setting]);
    this.go(this.opening());
    this.questionChanged();
  }

  answered(answer, right, told) {
    this.keep({ answer, right, told });
    this.chooseAnswer();
    this.showAnswer();
    this.hooks.onStep?.(this.step); // not where it is restored: another player of its key may have moved on
    const said = [...this.question.reply.children].map((part) => part.textContent);
    this.status.textContent = [...said, `Step ${this.step + 1}, ${this.where}.`].join(" ");
  }

  /** Show an answer that was given in another player. */
  restore(answer) {
    this.question.restore({ answer, told: false });
    this.questionChanged();
    this.chooseAnswer();
    this.showAnswer();
  }

  /** If the right answer is an option of a control, choose that option. */
  chooseAnswer() {
    const { controls, question } = this.data;
    const right = question.right.map(String);
    const k = controls.findIndex(({ options }) => right.length && right.every((id) => options.includes(id)));
    if (k >= 0 && this.steers) this.choose(this.setting.with(k, controls[k].options.indexOf(right[0])));
  }

  /** Store the answer in Python if the player is live, else in the browser. */
  keep(answered) {
    if (this.live) this.hooks.onAnswer(answered?.answer ?? []);
    else remember(this.function, answered);
  }

  /** Go to the step that shows the answer, or to the node of the next line's backward that does. */
  showAnswer() {
    const { at, place } = this.data.question;
    this.show(place ? at : this.seen());
    if (place) this.goInside(place);
  }

  /** Return the step that shows the answer. */
  seen() {
    const { question } = this.data;
    const { steps } = this.trace;
    const right = new Set(question.right.map(Number));
    const raised = steps.findIndex(({ raised: error }) => error && (question.kind !== "line" || right.has(error.line)));
    const most = Math.max(...steps.map(({ held }) => held[0]));
    const found = steps.findIndex(({ ran, held }, step) => {
      if (question.kind === "line") return raised < 0 && right.has(ran) && held[0] === most; // when it holds the most
      const gone = { node: "freed", tensor: "left" }[question.kind];
      return gone && step > question.at && this.timeline.changes(step)[gone].some((id) => right.has(id));
    });
    return [found, raised, this.timeline.last].find((step) => step >= 0);
  }

  questionChanged() {
    this.lock();
    const { question, data } = this;
    const picked = new Set(question.picked);
    const right = question.open ? null : new Set(data.question.right);
    const { kind } = data.question;
    if (kind === "line") this.source.offer(question.open ? question.ids : new Set(), picked, right);
    this.graph.offer(kind, question.ids, picked, right);
  }

  /** Lock controls and edits while a question is open; hide the graph if it is empty at every step that may be seen. */
  lock() {
    const { locked, limit } = this;
    const seen = this.trace.steps.slice(0, limit + 1);
    this.desk.classList.toggle("graphless", !seen.some(({ changed, inside }) => changed.length || inside.length));
    this.box.classList.toggle("locked", locked);
    for (const input of this.controls.querySelectorAll("input, select")) input.disabled = locked;
    this.edits?.opener.setAttribute("aria-disabled", String(locked));
    this.top.hidden = !this.edits && !this.controls.hasChildNodes();
  }

  pickInGraph(kind, id) {
    const wanted = this.locked && this.data.question.kind;
    if (kind === wanted || (kind === "leaf" && wanted === "node")) this.question.pickThere(id);
    else if (kind === "leaf" && wanted === "tensor") this.question.pickThere(this.trace.nodes[id].tensor);
    else this.light(kind === "tensor" ? "tensors" : "nodes", [id], true);
  }

  setTrace(trace) {
    this.trace = trace;
    this.showEdits();
    const rows = this.edits?.rows() ?? unedited(trace.source);
    this.timeline = new Timeline(trace, this.edits?.keys());
    this.graph.setTrace(trace, this.timeline);
    this.memory.setTrace(trace);
    const lines = Object.values(trace.source);
    this.source.box.classList.toggle("long", lines.length > LONG);
    const letters = Math.max(...lines.map(({ length }) => length)) + BESIDE_CODE;
    this.desk.style.setProperty("--code", `${letters * (lines.length > LONG ? 7.3 : 7.9)}px`);
    this.desk.style.setProperty("--whole", `${trace.views[0].width + 3 * MARGIN}px`);
    this.box.setAttribute("aria-label", `Line player: ${trace.function}`);
    this.source.setTrace(trace, rows);
    this.variables.setTrace(trace);
    this.drawControls();
    const failed = trace.error !== null;
    this.outcome.className = failed ? "outcome failed" : "outcome";
    this.outcome.replaceChildren(
      ...trace.outcome.map((text, i) =>
        element("p", {}, i === 0 ? element("strong", {}, failed ? "✗ " : "✓ ") : "", text),
      ),
    );
    if (this.question) this.questionChanged();
  }

  drawControls() {
    const inputs = this.steers ? drawControls(this.choices, this.setting, (setting) => this.choose(setting)) : [];
    const focused = [...this.controls.querySelectorAll("input, select")].indexOf(this.root.activeElement);
    this.controls.replaceChildren(...inputs);
    this.edits?.offerDraft(this.hooks.onSource);
    this.controls.querySelectorAll("input, select")[focused]?.focus();
    this.lock();
  }

  /** Show another setting at the same line; one that is not stored comes from the kernel, by `replace`. */
  choose(setting) {
    this.hooks.onSetting?.(setting);
    if (!this.stores(setting)) {
      this.status.textContent = "Python runs this setting.";
      return;
    }
    this.replace(this.data.traces[traceOf(this.data.controls, setting)], setting);
  }

  /** Show the trace of another setting, at the same line. */
  replace(trace, setting) {
    const { timeline, step } = this;
    this.setting = setting;
    this.setTrace(trace);
    this.go(step === undefined ? 0 : timeline.matching(this.timeline, step));
  }

  /** Show the edits that this setting makes, if the program has any to make. */
  showEdits() {
    const k = this.data.controls.findIndex(({ kind }) => kind === "edits");
    if (k < 0 || !this.steers) return;
    const { controls } = this.data;
    if (!this.edits) {
      const choose = (option) => this.choose(this.setting.with(k, option));
      this.edits = new Edits(controls[k], this.data.traces[0].source, choose);
      this.top.append(this.edits.box);
    }
    const chosen = Object.fromEntries(controls.map(({ name }, i) => [name, this.setting[i]]));
    this.edits.show(this.setting[k], this.trace.source, chosen);
    const isAboutEdits = this.data.question?.kind === "choices";
    this.question?.box.classList.toggle("edited", this.setting[k] !== 0 && !isAboutEdits);
  }

  pickLine(line) {
    if (this.locked && this.data.question.kind === "line") {
      this.question.pickThere(line);
      return;
    }
    const steps = this.trace.steps.slice(0, this.limit + 1).map((step, time) => [step, time]);
    const after = steps.filter(([step]) => step.ran === line);
    const here = after.find(([, time]) => time > this.step) ?? after[0] ?? steps.find(([step]) => step.line === line);
    if (here) this.go(here[1]);
  }

  /** Move to a step because the reader asked for it. */
  go(step) {
    this.box.classList.add("moves"); // what a step changed may be animated now, but not as it opens
    this.show(step);
    this.hooks.onStep?.(this.step);
  }

  /** Move to after the node at `place` in the next line's backward; beyond the last node, to the next step. */
  goInside(place) {
    if (place > this.inside.last) return this.go(this.step + 1);
    this.box.classList.add("moves");
    return this.show(this.step, place);
  }

  goBack() {
    if (this.place) this.goInside(this.place - 1);
    else this.go(this.step - 1);
  }

  over() {
    if (this.place) this.goInside(this.inside.after(this.place));
    else this.go(this.step + 1);
  }

  /** Move to the next node, however deep, in the next line's backward; step over a line without one. */
  stepInto() {
    return this.entered ? this.goInside(this.place + 1) : this.over();
  }

  stepOut() {
    if (this.place) this.goInside(this.inside.after(this.place, 1));
  }

  /** Go to the step that a link names by `{ step, line, after, …setting }`, unless a question is open. */
  follow(target) {
    const { controls } = this.data;
    if (this.locked) {
      this.status.textContent = "Answer the question first, or choose Show me.";
      this.question.check.focus();
      return;
    }
    const setting = this.setting.map((option, k) => {
      const wanted = target[controls[k].name];
      const found = wanted === undefined ? -1 : controls[k].options.findIndex((text) => String(text) === wanted);
      return found < 0 ? option : found;
    });
    if (String(setting) !== String(this.setting)) this.choose(setting);
    const number = (name, first = 0) => (name in target ? Number(target[name]) - first : undefined);
    const step = this.timeline.find({ step: number("step", 1), line: number("line"), after: number("after") });
    if (step === null) return;
    this.go(step);
    const { line, ran } = this.trace.steps[this.step];
    const lit = target.line !== undefined ? line : (ran ?? line);
    if (lit !== null) this.light("line", lit, true);
  }

  /** Show a step; `place` counts the nodes of the next line's backward that have run, usually 0. */
  show(step, place = 0) {
    const { trace, timeline } = this;
    this.step = Math.max(0, Math.min(step, this.limit));
    this.place = place;
    const line = trace.steps[this.step];
    const now = place ? this.inside.steps[place - 1] : line;
    const [shown, at] = this.moment;
    const did = shown.changes(at);
    this.bar.show();
    const leapt = trace.unrecorded > 0 && this.step === timeline.last; // what changed, other lines did
    this.source.show(now, at && !leapt ? deeds(did) : []);
    this.graph.show(at, shown, place ? this.inside : null);
    this.memory.show(place ? this.step + 1 : this.step, this.limit);
    if (place) this.memory.inside(this.inside.line, now.held);
    this.variables.show(shown.at(at).variables, line.values, did);
    this.outcome.classList.toggle("waiting", this.step < timeline.last || this.locked);
    this.showTwin();
    this.status.textContent = place
      ? `${this.where}. ${this.inside.text(place)}`
      : announcement(trace, timeline, this.step, this.where, this.locked);
    if (this.lit) this.light(null);
    for (const part of [this.graph, this.source]) part.settle(); // the drawing takes room from the source
  }

  /** The nodes of the next line's backward, or null if there are none or the line may not be seen. */
  get entered() {
    if (this.step >= this.limit || !this.trace.steps[this.step + 1].inside.length) return null;
    const { inside, timeline, step } = this;
    if (inside?.outer !== timeline || inside.step !== step + 1) this.inside = new Inside(timeline, step + 1);
    return this.inside;
  }

  /** The timeline that is shown, of lines or of a line's nodes, and its step. */
  get moment() {
    return this.place ? [this.inside.timeline, this.place] : [this.timeline, this.step];
  }

  showTwin() {
    if (!this.words.open) return;
    const [timeline, step] = this.moment;
    this.twin.replaceChildren(this.place ? this.inside.text(step) : "", ...twin(timeline.trace, timeline, step));
  }

  /** Highlight what belongs to an element, null for none; if `pinned`, until the next step or pin. */
  light(kind, id = null, pinned = false) {
    if (id === null && this.pinned && kind !== null) return this.lightAll(this.pinned);
    const [timeline, step] = this.moment;
    const lit = id === null ? NOTHING : timeline.related(kind, id, step, this.timeline.bindings(this.step));
    this.pinned = pinned ? lit : kind === null ? null : this.pinned;
    this.lightAll(lit);
  }

  lightAll(lit) {
    this.lit = lit !== NOTHING;
    this.source.light(lit.lines);
    this.graph.light(lit);
    this.variables.light(lit.names);
  }

  /** Before printing, show the last step that may be seen; after it, the step that was shown before. */
  paper(begins) {
    if (begins && this.left === undefined) this.left = this.step;
    this.show(begins ? this.limit : (this.left ?? this.step));
    if (!begins) this.left = undefined;
  }
}
