// The nodes that a line's backward ran, as a timeline: step 0 is the line's beginning, k is after its k-th node.

import { bytes, listed, plural } from "./dom.js";
import { Timeline } from "./timeline.js";

export class Inside {
  /** `timeline` is that of the lines, `step` its step after the line. */
  constructor(timeline, step) {
    const { trace } = timeline;
    const { inside, ran, unrecorded } = trace.steps[step];
    const begins = {
      ...trace.steps[step - 1],
      changed: [...timeline.at(step - 1).nodes.values()],
      gone: [],
      raised: null,
    };
    this.outer = timeline;
    this.step = step;
    this.line = ran;
    this.unrecorded = unrecorded;
    this.steps = inside.map((inner) => ({
      ...inner,
      ran: null,
      raised: inner.run.passed ? null : { line: ran, node: inner.run.node },
    }));
    this.timeline = new Timeline({ ...trace, steps: [begins, ...this.steps] });
  }

  get last() {
    return this.steps.length;
  }

  run(place) {
    return this.steps[place - 1].run;
  }

  /** Return the next node that is at most as deep in nested calls as this one less `out`, or Infinity. */
  after(place, out = 0) {
    const most = this.run(place).depth - out;
    return this.steps.findIndex(({ run }, k) => k >= place && run.depth <= most) + 1 || Infinity;
  }

  /** Return the gradients passed on to nodes that have not run: `{ from, to, text, fresh }`, `fresh` if just now. */
  gradients(place) {
    const { nodes } = this.outer.trace;
    let waiting = [];
    for (let k = 1; k <= place; k += 1) {
      const { node, call, passed } = this.run(k);
      if (passed) waiting = waiting.filter(({ to, of }) => to !== node || of !== call);
      nodes[node].next.forEach((to, i) => {
        const text = passed?.[i];
        if (text != null) waiting.push({ from: node, to, of: call, text, fresh: k === place });
      });
    }
    return waiting;
  }

  /** Describe in sentences what happened at the node of a place. */
  text(place) {
    const { nodes } = this.outer.trace;
    const step = this.steps[place - 1];
    const { node, received, passed, written, released, returned, hooks, recomputed } = step.run;
    const { leaf } = nodes[node];
    const name = leaf ? nodes[node].label : step.node;
    const arrived = received.filter((text) => text !== null);
    const gets = `${name} receives the gradient ${listed(arrived) || "(none)"}`;
    const sentences = [];
    if (!passed) sentences.push(`${gets} and stops${this.reason(node)}.`);
    else if (leaf) sentences.push(`${gets}.`, this.grows(name, written));
    else sentences.push(`${gets} and passes on ${listed(passed.map((text) => text ?? "nothing")) || "none"}.`);
    if (released.length) {
      const [ending, are] = released.length === 1 ? ["", "is"] : ["s", "are"];
      const less = returned ? `: the graph saves ${bytes(returned)} less` : "";
      sentences.push(`Its saved tensor${ending} ${listed(released)} ${are} freed${less}.`);
    }
    if (hooks.length) sentences.push(`${hooks.length === 1 ? "Hook" : "Hooks"} that ran: ${listed(hooks)}.`);
    if (recomputed.length) sentences.push(`The checkpoint recomputes ${listed(recomputed)}.`);
    if (place === this.last && this.unrecorded) {
      sentences.push(`${plural(this.unrecorded, "further node")} of this line ran unrecorded.`);
    }
    return sentences.filter(Boolean).join(" ");
  }

  /** Return why backward stopped at a node, or " with an error" if its saved tensors are intact. */
  reason(node) {
    const { steps } = this.outer.trace;
    const state = this.timeline.state(node, 0)?.state;
    const since = (wanted) =>
      steps.find(({ changed }) => changed.some((row) => row.node === node && row.state === wanted))?.ran;
    if (state === "freed")
      return `: the tensors that it saved were freed${since("freed") == null ? "" : ` on line ${since("freed")}`}`;
    if (state === "modified") return `: a tensor that it saved was changed in place on line ${since("modified")}`;
    return " with an error";
  }

  grows(name, written) {
    if (written?.[1] == null) return "";
    return written[0] === null
      ? `${name}.grad becomes ${written[1]}.`
      : `${name}.grad grows from ${written[0]} to ${written[1]}.`;
  }
}

/** Return the longest text about a node of any line; the graph keeps room for this text. */
export const longest = (timeline) =>
  timeline.trace.steps
    .flatMap(({ inside }, step) => {
      const line = inside.length && new Inside(timeline, step);
      return inside.map((_, k) => line.text(k + 1));
    })
    .sort((a, b) => b.length - a.length)[0] ?? "";
