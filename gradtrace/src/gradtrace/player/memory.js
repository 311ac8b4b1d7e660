// Bytes over the lines: what saved tensors hold after each line, and the peak inside the line as a mark.

import { bytes, element, shape } from "./dom.js";

const HEIGHT = 96; // with BOTTOM it makes the height of the drawing, in player.css
const LEFT = 58; // for the numbers of the axis
const BOTTOM = 18;
const TOP = 10;
const KINDS = [
  ["activations", "activations"],
  ["inputs", "parameters and inputs"],
  ["gradients", "gradients"],
];

export class Memory {
  /** @param {import("./player.js").Player} player */
  constructor(player) {
    this.reading = element("p", { class: "reading" });
    this.svg = shape("svg", { "aria-hidden": "true" });
    const legend = element(
      "ul",
      { class: "legend" },
      ...[...KINDS, ["peak", "all tensors, most inside the line", "┬"]].map(([kind, text, sign = ""]) =>
        element("li", { class: kind }, element("span", { class: `swatch ${kind}` }, sign), text),
      ),
    );
    this.box = element(
      "div",
      { class: "memory", role: "group", "aria-label": "Bytes held over the lines" },
      element("div", { class: "head" }, element("strong", {}, "Bytes held after each line"), legend),
      this.svg,
      this.reading,
    );
    this.svg.addEventListener("click", (event) => player.go(this.stepAt(event)));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  setTrace(trace) {
    this.trace = trace;
    this.parts = trace.steps.map(({ held, gradients }) => [held[0], held[1] + held[2], gradients ?? 0]);
    this.most = Math.max(1, ...this.parts.map(([a, b, c], i) => Math.max(a + b + c, trace.steps[i].peak ?? 0)));
    for (const [i, [kind]] of KINDS.entries())
      this.box.classList.toggle(`no-${kind}`, !this.parts.some((part) => part[i]));
    this.box.classList.toggle("no-peak", !trace.steps.some(({ peak }) => peak));
    this.step = undefined;
    this.width = 0;
    this.draw();
  }

  stepAt(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    const share = (event.clientX - left - LEFT) / (width - LEFT);
    return Math.max(0, Math.min(Math.floor(share * this.parts.length), this.shown ?? this.parts.length - 1));
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!this.trace || !width || width === this.width) return;
    this.width = width;
    const y = (count) => TOP + (HEIGHT - TOP) * (1 - count / this.most);
    const across = (width - LEFT) / this.parts.length;
    const gap = across > 6 ? 2 : 0;
    const marks = [0, this.most].flatMap((count) => [
      shape("path", { class: "grid", d: `M${LEFT} ${y(count)}H${width}` }),
      shape("text", { class: "axis", x: LEFT - 7, y: y(count) + 4, "text-anchor": "end" }, bytes(count)),
    ]);
    this.bars = this.parts.map((part, step) => {
      const x = LEFT + step * across + gap / 2;
      let sum = 0;
      const drawn = part.flatMap((count, i) => {
        if (!count) return [];
        const from = y(sum);
        sum += count;
        const height = Math.max(1.5, from - y(sum));
        return [shape("rect", { class: KINDS[i][0], x, y: from - height, width: Math.max(across - gap, 0.6), height })];
      });
      const { peak } = this.trace.steps[step];
      if (peak != null && peak > sum) {
        const centre = x + (across - gap) / 2;
        const half = Math.min(5, across / 3);
        const d = `M${centre} ${y(sum)}V${y(peak)}M${centre - half} ${y(peak)}h${2 * half}`;
        drawn.push(shape("path", { class: "peak", d }));
      }
      return shape("g", {}, ...drawn);
    });
    const every = Math.ceil(26 / across);
    const labels = this.trace.steps.flatMap(({ ran }, step) => {
      if (step % every || ran === null) return [];
      const x = LEFT + (step + 0.5) * across;
      return [shape("text", { class: "axis", x, y: HEIGHT + 14, "text-anchor": "middle" }, String(ran))];
    });
    const wide = Math.max(across, 2);
    const ground = shape("rect", { y: TOP - 4, height: HEIGHT + BOTTOM - TOP + 4, width: wide });
    this.cursor = shape("g", { class: "cursor" }, ground, shape("path", { d: `M0 ${HEIGHT}h${wide}` }));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT + BOTTOM}`);
    this.svg.replaceChildren(this.cursor, ...marks, ...this.bars, ...labels);
    this.across = across;
    if (this.step !== undefined) this.show(this.step, this.shown);
  }

  /** Mark a step, and hide the bars of the steps after `shown`. */
  show(step, shown) {
    this.step = step;
    this.shown = shown;
    this.reading.textContent = this.words(step);
    if (!this.bars) return;
    this.cursor.setAttribute("transform", `translate(${LEFT + step * this.across} 0)`);
    this.bars.forEach((bar, i) => bar.classList.toggle("absent", i > shown));
  }

  /** Show in words the bytes held while the reader steps through the nodes of a line. */
  inside(line, held) {
    this.reading.textContent = `Inside line ${line}: ${bytes(held[0])} held by saved activations.`;
  }

  words(step) {
    const { ran, peak, device } = this.trace.steps[step];
    const [activations, inputs, gradients] = this.parts[step];
    const also = [
      inputs && `${bytes(inputs)} of parameters and inputs`,
      gradients && `${bytes(gradients)} of gradients`,
    ].filter(Boolean);
    const inside =
      peak != null && peak > activations + inputs + gradients
        ? `; all tensors together at most ${bytes(peak)} inside the line`
        : "";
    const counters = device ? `; the device counts ${bytes(device.allocated)}, at most ${bytes(device.peak)}` : "";
    return `${ran === null ? "At the start" : `After line ${ran}`}: ${bytes(activations)} held by saved activations${also.length ? `, and ${also.join(", ")}` : ""}${inside}${counters}.`;
  }
}
