// Moving through a trace: line by line, and into, over and out of what a line's backward runs, by buttons
// and keys as in a debugger; and links that lead to a step.

import { reach } from "./question.js";

export class Stepping {
  /** @this {import("./player.js").Player} */
  pickLine(line) {
    if (this.locked && this.data.question.kind === "line") {
      if (this.question.pick(this.source.statement.get(line) ?? line))
        reach(this.question.check, this.question.check.parentNode);
      return;
    }
    const steps = this.trace.steps.map((step, time) => [step, time]).filter(([, time]) => time <= this.limit);
    const first = this.source.statement.get(line) ?? line;
    const after = steps.filter(([step]) => step.ran === first);
    const here = after.find(([, time]) => time > this.step) ?? after[0] ?? steps.find(([step]) => step.line === first);
    if (here) this.go(here[1]);
  }

  // Moving.

  /**
   * Move to a step because the reader asked for it.
   * @this {import("./player.js").Player}
   */
  go(step) {
    this.box.classList.add("moves"); // what a step changed may be animated now, but not as it opens
    this.show(step);
    this.hooks.onStep?.(this.step);
  }

  /**
   * Inside of the line that runs next, after the node at this place; null: the line is done.
   * @this {import("./player.js").Player}
   */
  goInside(place) {
    if (place === null || place > this.inside.last) return this.go(this.step + 1);
    this.box.classList.add("moves");
    return this.show(this.step, place);
  }

  /** @this {import("./player.js").Player} */
  goBack() {
    if (this.place) this.goInside(this.place - 1);
    else this.go(this.step - 1);
  }

  /** @this {import("./player.js").Player} */
  over() {
    if (this.place) this.goInside(this.inside.after(this.place));
    else this.go(this.step + 1);
  }

  /**
   * Into the backward of the line that runs next; within it to the next node, however deep.
   * @this {import("./player.js").Player}
   */
  stepInto() {
    if (!this.entered) return this.over();
    this.inside = this.entered;
    return this.goInside(this.place + 1);
  }

  /** @this {import("./player.js").Player} */
  stepOut() {
    if (this.place) this.goInside(this.inside.after(this.place, true));
  }

  /**
   * The buttons, the slider and the words beside it.
   * @this {import("./player.js").Player}
   */
  showBar() {
    const { trace, timeline, where, place } = this;
    const end = this.step >= this.limit;
    this.scrubber.value = this.step;
    // Not `disabled`: that would take the focus, and with it the keyboard, away.
    for (const made of [this.first, this.back]) made.setAttribute("aria-disabled", this.step === 0 && !place);
    for (const made of [this.next, this.last]) made.setAttribute("aria-disabled", end);
    this.into.setAttribute("aria-disabled", !this.entered);
    this.out.setAttribute("aria-disabled", !place);
    const unrecorded =
      trace.unrecorded > 0 && this.step === timeline.last
        ? `, after ${trace.unrecorded} more that were not recorded`
        : "";
    this.position.textContent = place
      ? where
      : `step ${this.step + 1} of ${trace.steps.length}: ${where}${end && this.locked ? ". Answer to go on" : ""}${unrecorded}`;
    this.scrubber.setAttribute("aria-valuetext", this.position.textContent);
  }

  /**
   * Lines, nodes, tensors and variables that belong to one of them.
   * @this {import("./player.js").Player}
   */
  related(kind, id) {
    const { trace, step, timeline: outer } = this;
    const [timeline, at] = this.moment;
    const now = timeline.at(at);
    const [lines, nodes, tensors, names] = [new Set(), new Set(), new Set(), new Set()];
    const saved = (node) =>
      trace.nodes[node].slots.forEach((slot, i) => {
        if (slot.tensor != null && now.nodes.get(node)?.slots[i][0] !== "freed") tensors.add(slot.tensor);
      });
    if (kind === "line") {
      const line = this.source.statement.get(id) ?? id;
      trace.nodes.forEach((node, i) => node.line === line && !node.leaf && nodes.add(i));
      for (const [name, from] of outer.bindings(step)) if (from === line) names.add(name);
      for (const row of now.variables) {
        if (!names.has(row.name)) continue;
        if (row.tensor !== null) tensors.add(row.tensor);
        if (row.leaf && row.node !== null) nodes.add(row.node);
      }
      lines.add(line);
    } else if (kind === "nodes") {
      for (const node of id) {
        nodes.add(node);
        saved(node);
        if (trace.nodes[node].line !== null) lines.add(trace.nodes[node].line);
      }
      for (const row of now.variables) if (nodes.has(row.node)) names.add(row.name);
    } else if (kind === "tensors") {
      for (const tensor of id) {
        tensors.add(tensor);
        const { slots, names: rows } = now.tensors.get(tensor) ?? { slots: [], names: [] };
        for (const [node] of slots) nodes.add(node);
        for (const row of rows) names.add(row.name);
        if (trace.tensors[tensor].line != null) lines.add(trace.tensors[tensor].line);
      }
    } else {
      names.add(id);
      const row = now.variables.find(({ name }) => name === id);
      if (row && row.tensor !== null) tensors.add(row.tensor);
      if (row && row.node !== null) nodes.add(row.node);
      const line = outer.bindings(step).get(id);
      if (line != null) lines.add(line);
    }
    return { lines, nodes, tensors, names };
  }

  // From outside: links in the prose.

  /**
   * Follow `{ step, line, after, node, …setting }`.
   * @this {import("./player.js").Player}
   */
  follow(target) {
    const { controls } = this.data;
    if (this.locked) {
      this.status.textContent = "Answer the question first, or choose Show me.";
      this.question.box.classList.add("nudge");
      setTimeout(() => this.question.box.classList.remove("nudge"), 1200);
      return;
    }
    const setting = this.setting.map((option, k) => {
      const wanted = target[controls[k].name];
      const found = wanted === undefined ? -1 : controls[k].options.findIndex((text) => String(text) === wanted);
      return found < 0 ? option : found;
    });
    if (String(setting) !== String(this.setting)) this.choose(setting);
    const numbers = Object.fromEntries(
      ["step", "line", "after"]
        .filter((name) => name in target)
        .map((name) => [name, Number(target[name]) - (name === "step" ? 1 : 0)]),
    );
    let step = this.timeline.find(numbers);
    const node =
      target.node === undefined
        ? -1
        : this.trace.nodes.findIndex(({ label, name }) => label === target.node || name === target.node);
    if (node >= 0 && step === null && !this.timeline.state(node, this.step)) step = this.timeline.history[node][0][0];
    if (step !== null) this.go(step);
    if (node >= 0) {
      this.graph.reveal(node);
      this.light("nodes", [node], true);
    } else if (step !== null) {
      const { line, ran } = this.trace.steps[this.step];
      const lit = target.line !== undefined ? line : (ran ?? line);
      if (lit !== null) this.light("line", lit, true);
    }
  }

  /** @this {import("./player.js").Player} */
  key(event) {
    const target = event.composedPath()[0];
    const slides = target === this.scrubber;
    if (event.altKey || event.ctrlKey || event.metaKey || (!slides && /^(INPUT|SELECT|SUMMARY)$/.test(target.tagName)))
      return;
    const act = this.action(event);
    const arrow = event.key.startsWith("Arrow") || event.key === "Home" || event.key === "End";
    if (!act || (arrow && (slides || (target === this.variables.box && target.scrollWidth > target.clientWidth))))
      return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /**
   * What a key does: as in VS Code, as in pdb, and with arrows.
   * @this {import("./player.js").Player}
   */
  action({ key, shiftKey }) {
    const actions = {
      ArrowLeft: () => this.goBack(),
      ArrowRight: () => this.over(),
      Home: () => this.go(0),
      End: () => this.go(Infinity),
      F10: () => this.over(),
      n: () => this.over(),
      F11: () => this.stepInto(),
      s: () => this.stepInto(),
      r: () => this.stepOut(),
      e: () => this.edits?.reveal([]),
    };
    return shiftKey ? key === "F11" && (() => this.stepOut()) : actions[key];
  }
}
