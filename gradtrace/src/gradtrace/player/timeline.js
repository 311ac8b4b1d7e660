// The state of every node at any step of a trace, whose steps list only what differs from the step before.

/** The states of a slot that holds its tensor. */
export const HELD = new Set(["alive", "modified", "packed"]);

export class Timeline {
  /** `keys` maps lines to keys that are equal for the same line in differently edited programs. */
  constructor(trace, keys = new Map()) {
    this.trace = trace;
    this.last = trace.steps.length - 1;
    this.history = trace.nodes.map(() => []);
    trace.steps.forEach((step, time) => {
      for (const state of step.changed) this.history[state.node].push([time, state]);
      for (const node of step.gone) this.history[node].push([time, null]);
    });
    const visits = new Map();
    this.visits = trace.steps.map(({ line: number }) => {
      const line = keys.get(number) ?? number;
      visits.set(line, (visits.get(line) ?? 0) + 1);
      return `${line} ${visits.get(line)}`;
    });
    this.leafOf = new Map(); // tensor → node of the leaf that it is
    trace.nodes.forEach(({ tensor }, node) => tensor != null && this.leafOf.set(tensor, node));
    this.cache = new Map();
  }

  /** Return the state of a node at a step, or null: `{ node, state, slots }`, for each slot `[state, version]`. */
  state(node, step) {
    return this.history[node].findLast(([time]) => time <= step)?.[1] ?? null;
  }

  /** Return the nodes and variables of a step, and for each tensor the slots and variables that hold it. */
  at(step) {
    const known = this.cache.get(step);
    if (known) return known;
    if (this.cache.size > 8) this.cache.clear();
    const nodes = new Map();
    if (step >= 0) {
      this.history.forEach((_, node) => {
        const row = this.state(node, step);
        if (row) nodes.set(node, row);
      });
    }
    const variables = step < 0 ? [] : this.trace.steps[step].variables;
    const tensors = new Map(); // tensor → { slots: [[node, slot]], names: [variable], first: the node that saved it first }
    const holders = (tensor) => {
      if (!tensors.has(tensor)) tensors.set(tensor, { slots: [], names: [], first: null });
      return tensors.get(tensor);
    };
    for (const [node, row] of nodes) {
      const { slots, order } = this.trace.nodes[node];
      slots.forEach(({ empty, tensor }, slot) => {
        if (empty || tensor == null || !HELD.has(row.slots[slot][0])) return;
        const held = holders(tensor);
        held.slots.push([node, slot]);
        if (held.first === null || order < this.trace.nodes[held.first].order) held.first = node;
      });
    }
    for (const variable of variables) if (variable.tensor !== null) holders(variable.tensor).names.push(variable);
    const made = { nodes, variables, tensors };
    this.cache.set(step, made);
    return made;
  }

  /** Return what the line that led to a step changed, by comparing the step with the one before. */
  changes(step) {
    const now = this.at(step);
    now.did ??= this.compare(now, this.at(step - 1));
    return now.did;
  }

  /** Return the sets of nodes that a step created, freed (`cut`) or modified, gave a gradient, or stopped at. */
  happened(step) {
    const { made, freed, modified, variables } = this.changes(step);
    const stopped = this.trace.steps[step].raised?.node ?? null;
    const written = this.at(step).variables.filter(
      ({ leaf, name }) => leaf && variables.get(name)?.includes("gradient"),
    );
    return {
      new: new Set(step ? made : []),
      cut: new Set(freed),
      modified: new Set(modified),
      gradient: new Set(written.map(({ node }) => node)),
      stopped: new Set(stopped === null ? [] : [stopped]),
    };
  }

  compare(now, before) {
    const made = [];
    const freed = [];
    const modified = [];
    for (const [node, row] of now.nodes) {
      const old = before.nodes.get(node);
      if (!old && !this.trace.nodes[node].leaf) made.push(node);
      if (row.state === "freed" && old?.state !== "freed") freed.push(node);
      if (row.slots.some(([state], slot) => state === "modified" && old?.slots[slot][0] !== "modified"))
        modified.push(node);
    }
    const old = new Map(before.variables.map((row) => [row.name, row]));
    const variables = new Map(); // name → what became of it
    for (const row of now.variables) {
      const previous = old.get(row.name);
      const what = [];
      if (!previous) what.push("new");
      else {
        if (previous.object !== row.object) what.push("rebound");
        else if (row.version > previous.version || (previous.tensor !== null && row.tensor !== previous.tensor))
          what.push("changed");
        if (row.grad !== previous.grad) what.push(row.grad === null ? "cleared" : "gradient");
      }
      if (!previous && row.grad !== null) what.push("gradient");
      if (what.length) variables.set(row.name, what);
    }
    const arrived = [...now.tensors.keys()].filter((tensor) => !before.tensors.has(tensor));
    const left = [...before.tensors.keys()].filter((tensor) => !now.tensors.has(tensor));
    return { made, freed, modified, variables, arrived, left };
  }

  /** Map each variable at a step to the line that bound it to its tensor. */
  bindings(step) {
    if (this.bound?.step === step) return this.bound.lines;
    let lines = new Map();
    let before = new Map();
    for (const { ran, variables } of this.trace.steps.slice(0, step + 1)) {
      const [now, next] = [new Map(), new Map()];
      for (const row of variables) {
        const same = before.get(row.name)?.object === row.object; // the name still means the same tensor
        now.set(row.name, row);
        next.set(row.name, same ? lines.get(row.name) : ran);
      }
      [before, lines] = [now, next];
    }
    this.bound = { step, lines };
    return lines;
  }

  /**
   * Return what belongs to a line (of a statement, the first), a variable, nodes or tensors at a step: lines, nodes,
   * tensors and variables. `bound` maps variables to the lines that bound them.
   */
  related(kind, id, step, bound) {
    const { nodes: alive, tensors: held, variables } = this.at(step);
    const { trace } = this;
    const lit = { lines: new Set(), nodes: new Set(), tensors: new Set(), names: new Set() };
    const add = (set, value) => value != null && set.add(value);
    const addVariable = (row) => {
      lit.names.add(row.name);
      add(lit.tensors, row.tensor);
      add(lit.nodes, row.node);
    };
    if (kind === "line") {
      lit.lines.add(id);
      trace.nodes.forEach((node, i) => node.line === id && !node.leaf && lit.nodes.add(i));
      for (const row of variables) if (bound.get(row.name) === id) addVariable(row);
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

  /** Return the step of `other` at the same visit of the same line, else after the last visit that both have. */
  matching(other, step) {
    for (let time = step; time >= 0; time -= 1) {
      const same = other.visits.indexOf(this.visits[time]);
      if (same >= 0) return time === step ? same : Math.min(same + 1, other.last);
    }
    return 0;
  }

  /**
   * Return the step for `{ step }`, `{ line }` (about to run) or `{ after }` (has just run); else null.
   * @param {{ step?: number, line?: number, after?: number }} where
   */
  find({ step, line, after }) {
    const { steps } = this.trace;
    if (step !== undefined) return Math.max(0, Math.min(step, this.last));
    const found = steps.findIndex(
      (item, time) =>
        (after === undefined || item.ran === after) &&
        (line === undefined || item.line === line || (after !== undefined && time === this.last)),
    );
    return found < 0 || (after ?? line) === undefined ? null : found;
  }
}
