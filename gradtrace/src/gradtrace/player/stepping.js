// Moving through a trace: line by line, and into, over and out of what a line's backward runs, by buttons
// and keys as in a debugger; and links that lead to a step.

export class Stepping {
  /** @this {import("./player.js").Player} */
  pickLine(line) {
    const first = this.source.statement.get(line) ?? line;
    if (this.locked && this.data.question.kind === "line") {
      this.question.pickThere(first);
      return;
    }
    const steps = this.trace.steps.slice(0, this.limit + 1).map((step, time) => [step, time]);
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
   * Move to after the node at `place` in the next line's backward; beyond the last node, to the next step.
   * @this {import("./player.js").Player}
   */
  goInside(place) {
    if (place > this.inside.last) return this.go(this.step + 1);
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
   * Move to the next node, however deep, in the next line's backward; step over a line without one.
   * @this {import("./player.js").Player}
   */
  stepInto() {
    return this.entered ? this.goInside(this.place + 1) : this.over();
  }

  /** @this {import("./player.js").Player} */
  stepOut() {
    if (this.place) this.goInside(this.inside.after(this.place, 1));
  }

  /**
   * Update the buttons, the slider and the words beside it.
   * @this {import("./player.js").Player}
   */
  showBar() {
    const { trace, timeline, where, place } = this;
    const end = this.step >= this.limit;
    this.scrubber.value = this.step;
    // Not `disabled`: that would take the focus, and with it the keyboard, away.
    for (const made of [this.first, this.back]) made.setAttribute("aria-disabled", this.step === 0 && !place);
    for (const made of [this.next, this.into, this.last]) made.setAttribute("aria-disabled", end);
    this.into.classList.toggle("primary", this.entered !== null);
    this.out.setAttribute("aria-disabled", !place);
    const unrecorded =
      trace.unrecorded > 0 && this.step === timeline.last
        ? `, after ${trace.unrecorded} more that were not recorded`
        : "";
    this.position.textContent = place
      ? where
      : `step ${this.step + 1} of ${trace.steps.length}: ${end && this.locked ? "answer to go on" : where}${unrecorded}`;
    this.scrubber.setAttribute("aria-valuetext", this.position.textContent);
  }

  /**
   * Return the lines, nodes, tensors and variables that belong to a line, variable, nodes or tensors.
   * @this {import("./player.js").Player}
   */
  related(kind, id) {
    const [timeline, at] = this.moment;
    const { nodes: alive, tensors: held, variables } = timeline.at(at);
    const bound = this.timeline.bindings(this.step);
    const { trace } = this;
    const lit = { lines: new Set(), nodes: new Set(), tensors: new Set(), names: new Set() };
    const add = (set, value) => value != null && set.add(value);
    const addVariable = (row) => {
      lit.names.add(row.name);
      add(lit.tensors, row.tensor);
      add(lit.nodes, row.node);
    };
    if (kind === "line") {
      const line = this.source.statement.get(id) ?? id;
      lit.lines.add(line);
      trace.nodes.forEach((node, i) => node.line === line && !node.leaf && lit.nodes.add(i));
      for (const row of variables) if (bound.get(row.name) === line) addVariable(row);
    } else if (kind === "name") {
      variables.filter(({ name }) => name === id).forEach(addVariable);
      add(lit.lines, bound.get(id));
    } else if (kind === "nodes") {
      for (const node of id) {
        lit.nodes.add(node);
        add(lit.lines, trace.nodes[node].line);
        trace.nodes[node].slots.forEach(({ tensor }, i) => {
          if (alive.has(node) && alive.get(node).slots[i][0] !== "freed") add(lit.tensors, tensor);
        });
      }
      for (const { node, name } of variables) if (lit.nodes.has(node)) lit.names.add(name);
    } else {
      for (const tensor of id) {
        lit.tensors.add(tensor);
        add(lit.lines, trace.tensors[tensor].line);
        for (const [node] of held.get(tensor)?.slots ?? []) lit.nodes.add(node);
        for (const { name } of held.get(tensor)?.names ?? []) lit.names.add(name);
      }
    }
    return lit;
  }

  // From outside: links in the prose.

  /**
   * Go to the step that a link names by `{ step, line, after, …setting }`, unless a question is open.
   * @this {import("./player.js").Player}
   */
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
    const numbers = Object.fromEntries(
      ["step", "line", "after"]
        .filter((name) => name in target)
        .map((name) => [name, Number(target[name]) - (name === "step" ? 1 : 0)]),
    );
    const step = this.timeline.find(numbers);
    if (step === null) return;
    this.go(step);
    const { line, ran } = this.trace.steps[this.step];
    const lit = target.line !== undefined ? line : (ran ?? line);
    if (lit !== null) this.light("line", lit, true);
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
   * Return the action of a key, if it has one: the keys of VS Code and of pdb, and arrows.
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
