// The bar: buttons that move as in a debugger, a slider, and where the player is; the same by keys.

import { button, element } from "./dom.js";

export class Bar {
  /** @param {import("./player.js").Player} player */
  constructor(player) {
    this.player = player;
    this.first = button("⇤", "First step", () => player.go(0));
    this.back = button("←", "Step back (Left arrow)", () => player.goBack());
    this.next = button("→", "Step over (F10, n)", () => player.over(), { class: "primary" });
    this.into = button("↓", "Step into (F11, s)", () => player.stepInto());
    this.out = button("↑", "Step out (Shift+F11, r)", () => player.stepOut());
    this.last = button("⇥", "Last step", () => player.go(Infinity));
    const ways = [this.next, this.into, this.out];
    ["Over", "Into", "Out"].forEach((word, i) => ways[i].append(element("span", { class: "label" }, ` ${word}`)));
    const slide = () => player.go(Number(this.scrubber.value));
    this.scrubber = element("input", { type: "range", min: "0", "aria-label": "Step", oninput: slide });
    this.position = element("span", { class: "position" });
    const buttons = element("div", { class: "buttons" }, this.first, this.back, ...ways, this.last);
    this.box = element("div", { class: "bar" }, buttons, this.scrubber, this.position);
  }

  /** Show where the player is, and which ways it can go. */
  show() {
    const { trace, timeline, step, place, limit, locked, entered, where } = this.player;
    const end = step >= limit;
    this.scrubber.max = timeline.last;
    this.scrubber.value = step;
    // Not `disabled`: that would take the focus, and with it the keyboard, away.
    for (const made of [this.first, this.back]) made.setAttribute("aria-disabled", step === 0 && !place);
    for (const made of [this.next, this.into, this.last]) made.setAttribute("aria-disabled", end);
    this.into.classList.toggle("primary", entered !== null);
    this.out.setAttribute("aria-disabled", !place);
    const unrecorded =
      trace.unrecorded > 0 && step === timeline.last ? `, after ${trace.unrecorded} more that were not recorded` : "";
    this.position.textContent = place
      ? where
      : `step ${step + 1} of ${trace.steps.length}: ${end && locked ? "answer to go on" : where}${unrecorded}`;
    this.scrubber.setAttribute("aria-valuetext", this.position.textContent);
  }

  /** Act on the keys of VS Code and of pdb, and on arrows, except where a control or a scroll bar takes them. */
  key(event) {
    const { player } = this;
    const { key, shiftKey } = event;
    const target = event.composedPath()[0];
    const slides = target === this.scrubber;
    if (event.altKey || event.ctrlKey || event.metaKey || (!slides && /^(INPUT|SELECT|SUMMARY)$/.test(target.tagName)))
      return;
    const actions = {
      ArrowLeft: () => player.goBack(),
      ArrowRight: () => player.over(),
      Home: () => player.go(0),
      End: () => player.go(Infinity),
      F10: () => player.over(),
      n: () => player.over(),
      F11: () => (shiftKey ? player.stepOut() : player.stepInto()),
      s: () => player.stepInto(),
      r: () => player.stepOut(),
      e: () => player.edits?.reveal([]),
    };
    const act = (key === "F11" || !shiftKey) && actions[key];
    const scrolls = target === player.variables.box && target.scrollWidth > target.clientWidth;
    if (!act || (/^(Arrow|Home|End)/.test(key) && (slides || scrolls))) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }
}
