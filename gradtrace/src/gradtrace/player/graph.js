// The graph, one view at a time. A step only changes classes and texts, and redraws the references.

import { button, bytes, element, listed, plural, pointedAt, pressed, shape, shortened } from "./dom.js";
import { longest } from "./inside.js";
import { narrowed } from "./narrow.js";
import { MARGIN, NARROW, Panel, READABLE, whole } from "./panel.js";
import { clear, port, references } from "./references.js";
import { HELD } from "./timeline.js";
import { describe, describeGroup, describeTensor } from "./words.js";

const NAMES = 9; // from a tensor to the names of its variables
const LETTER = 6.7; // the width of a character of 11 px
const PILL = 13; // the height of a gradient's numbers
const WORTH = 1.2; // on more, where it would be cut, or is so much larger then
const LEGEND = [
  ["new", "+", "new"],
  ["held", "■", "saved: a reference"],
  ["cut", "✂", "freed now"],
  ["freed", "□", "freed earlier"],
  ["modified", "▲", "changed in place"],
  ["gradient", "∇", "gradient"],
  ["made", "┄", "grad_fn"],
  ["arrow", "→", "backward"],
];

export class Graph extends Panel {
  /** @param {import("./player.js").Player} player */
  constructor(player) {
    super();
    this.player = player;
    this.crumbs = element("div", { class: "crumbs", role: "group", "aria-label": "Levels of the graph" });
    const tools = [
      button("−", "Zoom out", () => this.zoom(1 / 1.25)),
      button("+", "Zoom in", () => this.zoom(1.25)),
      button("Fit", "Fit the drawing", () => this.fitWhole()),
    ];
    this.empty = element("div", { class: "empty" }, "Nothing of this part of the graph exists at this step.");
    this.scroll = element("div", { class: "scroll", tabindex: "-1" });
    this.stage = element("div", { class: "stage" }, this.scroll, this.empty);
    this.told = element("p", { class: "told" }); // in place of the legend, while the reader is inside of a line
    const entries = LEGEND.map(([kind, sign, text]) => {
      const shown = element("span", { class: `sign ${kind}`, "aria-hidden": "true" }, sign);
      return element("li", {}, shown, element("span", {}, text));
    });
    this.legend = element("ul", { class: "legend" }, ...entries);
    this.foot = element("div", { class: "foot" }, this.told, this.legend);
    this.box = element(
      "div",
      { class: "graph", role: "group", "aria-label": "Autograd graph" },
      element("div", { class: "head" }, this.crumbs, element("div", { class: "tools" }, ...tools)),
      this.stage,
      this.foot,
    );
    this.box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.view && !this.zoomed && this.fit()).observe(this.scroll);
  }

  setTrace(trace, timeline) {
    this.trace = trace;
    this.timeline = timeline;
    this.offered = null;
    this.step = undefined; // until the first one is shown
    this.most = Math.max(1, ...trace.steps.map((step) => step.held[0]));
    this.foot.dataset.longest = longest(timeline);
    this.open(0);
  }

  /** Draw the boxes, tensors and arrows of a view. */
  open(index) {
    this.index = index;
    this.room = this.stage.clientWidth; // with a scroll bar or without
    this.view = this.laidOut(this.room);
    const { boxes, tensors: things, edges, width, height } = this.view;
    this.wide = width + 2 * MARGIN;
    this.high = height + 2 * MARGIN;
    this.boxOf = new Map(boxes.flatMap((box) => box.nodes.map((node) => [node, box])));
    this.thingOf = new Map(things.map((thing) => [thing.tensor, thing]));
    this.boxes = new Map();
    this.things = new Map();
    this.edges = edges.map(({ start, end, bends }) => {
      const [a, b] = [boxes[start], boxes[end]];
      const points = [[a.x + a.width / 2, a.y], ...bends, [b.x + b.width / 2, b.y + b.height + 1]];
      return { line: shape("path", { class: "edge", d: smooth(points), "marker-end": "url(#arrow)" }), a, b };
    });
    this.references = shape("g", { class: "references", "aria-hidden": "true" });
    this.gradients = shape("g", { class: "gradients", "aria-hidden": "true" });
    this.svg = shape(
      "svg",
      {
        role: "group",
        "aria-label": this.view.title,
        viewBox: `${-MARGIN} ${-MARGIN} ${this.wide} ${this.high}`,
      },
      shape(
        "defs",
        {},
        shape(
          "marker",
          { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
          shape("path", { d: "M0 0L8 4L0 8z", class: "head" }),
        ),
      ),
      ...this.edges.map(({ line }) => line),
      this.references, // behind the boxes, whose words they may not cross
      ...boxes.map((box) => this.drawBox(box)),
      ...things.map((thing) => this.drawThing(thing)),
      this.gradients,
    );
    this.scroll.replaceChildren(this.svg);
    this.showCrumbs();
    this.fitted = false;
    if (this.step === undefined) return;
    this.show(this.step, this.timeline, this.inside);
    if (this.offered) this.offer(...this.offered);
    this.settle();
  }

  /** Return the view for a panel of this width: as it was laid out, or in one column if that shows it larger. */
  laidOut(width) {
    const view = this.trace.views[this.index];
    const across = (width - 2) / (view.width + 2 * MARGIN);
    if (width <= 0 || across >= 1) return view;
    const other = narrowed(view, width - 2 - 2 * MARGIN);
    return width < NARROW || across < READABLE || whole(other, width) > WORTH * whole(view, width) ? other : view;
  }

  /** Return the attributes of a box or tensor that can be chosen by `onclick` and pointed at. */
  interactive(kind, id, onclick) {
    return { role: "button", tabindex: "-1", onclick, ...pointedAt(this.player, kind, id) };
  }

  drawBox(box) {
    const { x, y, width, height, kind, nodes } = box;
    const folded = kind === "group" || kind === "outside" || nodes.length > 1;
    const title = shape("text", { class: "title", x: x + 9, y: y + 20 });
    const texts = Array.from({ length: box.rows }, (_, i) => shape("text", { x: x + 9, y: y + 36 + 16 * i }));
    const ports =
      folded || kind === "leaf"
        ? []
        : texts.map((_, i) => {
            const [cx, cy] = port(box, i + 1);
            return shape("circle", { class: "port", cx, cy, r: 3.4 });
          });
    const flags = shape("g", { class: "flags" });
    const meter = { class: "meter", x: x + 9, y: y + height - 9, height: 4, rx: 2, width: 0 };
    const bar = kind === "group" && shape("rect", meter);
    // On either side of the edge: further out a tensor may stand. The box's description says it aloud.
    const below = (text, side, anchor) => {
      const place = { x: x + width / 2 + 7 * side, y: y + height + 11, "text-anchor": anchor };
      return text && shape("text", { class: "made", "aria-hidden": "true", ...place }, text);
    };
    const acts = this.interactive("nodes", nodes, () => this.act(box));
    const group = shape(
      "g",
      { class: `box ${kind}`, ...acts },
      kind === "group" && shape("rect", { class: "under", x: x + 3, y: y + 3, width, height, rx: 5 }),
      shape("rect", { class: "face", x, y, width, height, rx: kind === "leaf" ? 14 : 5 }),
      title,
      ...apart(texts),
      ...ports,
      bar,
      box.end && shape("path", { class: "edge", d: `M${x + width / 2} ${y + height}v13m-5 0h10` }),
      below(box.end && "output", -1, "end"),
      below(box.outputs, 1, "start"),
      flags,
    );
    this.boxes.set(box, { group, title, texts, ports, flags, bar, folded });
    return group;
  }

  drawThing(thing) {
    const { x, y, width, height, tensor } = thing;
    const face = shape("rect", { class: "face", x, y, width, height, rx: Math.min(8, height / 2) });
    const [right, middle] = [x + width, y + height / 2];
    const size = shape("text", { class: "size", x: x + width / 2, y: middle + 4 });
    const names = thing.below
      ? shape("text", { class: "names", x: right, y: y + height + 15, "text-anchor": "end" })
      : shape("text", { class: "names", x: right + NAMES, y: middle + 4 });
    const d = thing.below ? `M${right - 9} ${y + height}v4` : `M${right} ${middle}h7`;
    const tie = shape("path", { class: "reference name", d });
    const acts = this.interactive("tensors", [tensor], () => this.player.pickInGraph("tensor", tensor));
    const { role } = this.trace.tensors[tensor];
    const group = shape("g", { class: `thing ${role}`, ...acts }, tie, face, names, " ", size);
    this.things.set(thing, { group, size, names, tie });
    return group;
  }

  /** Act on a click or Enter on a box: open its view, or pick its first node. */
  act(box) {
    if (box.view != null && box.view !== this.index) this.enter(box.view);
    else if (box.kind === "leaf" && box.nodes.length === 1) this.player.pickInGraph("leaf", box.nodes[0]);
    else if (box.nodes.length) this.player.pickInGraph("node", box.nodes[0]);
  }

  enter(view) {
    const inside = this.scroll.contains(this.box.getRootNode().activeElement);
    this.open(view);
    if (inside) this.svg.querySelector("[tabindex='0']")?.focus();
    this.player.status.textContent = `Inside ${this.view.title}.`;
  }

  showCrumbs() {
    const path = [];
    for (let k = this.index; k != null; k = this.trace.views[k].parent) path.unshift(k);
    this.crumbs.hidden = this.trace.views.length < 2;
    this.crumbs.replaceChildren(
      ...path.flatMap((k, i) => {
        const name = this.trace.views[k].title;
        const crumb =
          k === this.index
            ? element("span", { "aria-current": "true" }, name)
            : element("button", { onclick: () => this.enter(k) }, name);
        return i ? [element("span", { "aria-hidden": "true" }, "›"), crumb] : [crumb];
      }),
    );
  }

  /** Show step `step` of a timeline; `inside` is set if its steps are the nodes of a line. */
  show(step, timeline, inside) {
    this.step = step;
    this.timeline = timeline;
    this.inside = inside;
    this.trace = timeline.trace;
    const { trace } = timeline;
    const now = timeline.at(step);
    const before = timeline.at(step - 1);
    const did = timeline.changes(step);
    const changed = { ...timeline.happened(step), running: new Set(inside ? [inside.run(step).node] : []) };
    /** @type {{ x: number, y: number, width: number, height: number }[]} the places of small words */
    this.labels = [];
    let drawn = 0;
    for (const [box, parts] of this.boxes) {
      const present = box.nodes.filter((node) => now.nodes.has(node));
      const absent = !present.length && box.nodes.length > 0;
      parts.group.classList.toggle("absent", absent);
      if (absent) continue;
      if (box.kind !== "outside") drawn += 1;
      this.showBox(box, parts, present, now, changed);
    }
    for (const [thing, parts] of this.things) this.showThing(thing, parts, now, before, did);
    for (const { line, a, b } of this.edges) {
      const absent = [a, b].some((box) => this.boxes.get(box).group.classList.contains("absent"));
      line.classList.toggle("absent", absent);
    }
    this.references.replaceChildren(
      ...references(trace, now, before, {
        boxAt: (node) => this.boxOf.get(node),
        thingAt: (tensor) => this.thingOf.get(tensor) ?? this.boxOf.get(timeline.leafOf.get(tensor)),
        alone: (box) => !this.boxes.get(box).folded,
        labels: this.labels,
        boxes: this.view.boxes,
      }),
    );
    this.gradients.replaceChildren(...this.references.querySelectorAll(".scissors")); // in front of the boxes
    for (const gradient of inside?.gradients(step).reverse() ?? []) this.drawGradient(gradient);
    this.told.textContent = inside?.text(step) ?? "";
    this.empty.hidden = drawn > 0;
    this.scroll.classList.toggle("idle", drawn === 0);
    this.roving();
    this.happened = [...changed.stopped, ...changed.running, ...changed.cut, ...changed.new];
  }

  /** Draw a gradient on its edge, with its numbers, if there is room, below its target or above its source. */
  drawGradient({ from, to, text, fresh }) {
    const [a, b] = [this.boxOf.get(from), this.boxOf.get(to)];
    const edge = a !== b && this.edges.find((other) => other.a === a && other.b === b);
    if (!edge) return;
    const d = edge.line.getAttribute("d");
    if (fresh)
      this.gradients.prepend(shape("circle", { class: "traveller", r: 5, style: `offset-path: path("${d}")` }));
    this.gradients.prepend(shape("path", { class: fresh ? "way" : "way waits", d })); // no way covers a number
    const places = [
      [b, b.y + b.height + 1],
      [a, a.y - 22],
    ].map(([{ x, width }, y]) => {
      const words = shortened(`∇ ${text}`, Math.floor(width / LETTER));
      return { words, x: x + (width - pillWidth(words)) / 2, y, width: pillWidth(words), height: PILL };
    });
    const free = clear(places, this.labels);
    if (free) this.gradients.append(...this.drawPill(fresh ? "gradient fresh" : "gradient", free));
  }

  /** Fit and scroll the drawing, once all is drawn, because measuring makes the browser compute the layout. */
  settle() {
    if (!this.fitted) this.fit();
    this.bringIntoView(this.happened);
  }

  /** Let the Tab key reach `wanted` only, by default the element that it reached before, else the first. */
  roving(
    wanted = this.svg.querySelector("[tabindex='0']:not(.absent)") ??
      this.svg.querySelector("[role=button]:not(.absent)"),
  ) {
    for (const group of this.svg.querySelectorAll("[tabindex='0']")) group.setAttribute("tabindex", "-1");
    wanted?.setAttribute("tabindex", "0");
    if (this.box.getRootNode().activeElement?.closest("svg .absent")) wanted?.focus();
  }

  showBox(box, parts, present, now, changed) {
    const { group, title, texts, ports, flags, bar, folded } = parts;
    const count = (kind) => present.filter((node) => changed[kind].has(node)).length;
    const freed = present.filter((node) => now.nodes.get(node).state === "freed").length;
    const some = Object.fromEntries(Object.keys(changed).map((kind) => [kind, count(kind)]));
    for (const kind of Object.keys(changed)) group.classList.toggle(kind, some[kind] > 0);
    group.classList.toggle(
      "freed",
      freed > 0 && freed === present.filter((node) => now.nodes.get(node).state !== "saves nothing").length,
    );
    const number = (kind) => (folded ? `${some[kind]} ` : "");
    this.showFlags(
      box,
      flags,
      [
        some.stopped && ["stopped", folded ? "✗ stopped inside" : "✗ stopped here"],
        some.cut && ["cut", `✂ ${number("cut")}freed now`],
        some.modified && ["modified", `▲ ${number("modified")}changed`],
        some.gradient && ["gradient", `∇ ${number("gradient")}grad`],
        some.new && ["new", `+ ${number("new")}new`],
        some.running && !some.stopped && ["running", "▶ runs"],
      ]
        .filter(Boolean)
        .slice(0, folded ? 3 : 2),
    );
    const room = Math.floor((box.width - 16) / 7.2);
    title.textContent = shortened(box.title, room);
    if (folded) {
      const leaves = present.length && present.every((node) => this.trace.nodes[node].leaf);
      const [held, shared] = this.heldBy(present, now, leaves);
      if (texts[0])
        texts[0].textContent = leaves
          ? `${plural(present.length, "leaf", "leaves")}, ${bytes(held)}`
          : `${plural(present.length, "node")}, ${freed} freed`;
      if (texts[1])
        texts[1].textContent =
          box.kind === "group" && !leaves
            ? shortened(shared ? `${bytes(held)}, ${bytes(shared)} shared` : `${bytes(held)} held`, room)
            : "";
      const share = leaves ? 0 : Math.min(1, held / this.most);
      if (bar) bar.setAttribute("width", Math.max(0, (box.width - 18) * share).toFixed(1));
      group.setAttribute("aria-description", describeGroup(box, present, freed, held, some));
      return;
    }
    const node = present[0];
    group.setAttribute("aria-description", describe(this.trace, now, node, changed));
    if (this.trace.nodes[node].leaf) {
      const { tensor } = this.trace.nodes[node];
      const variable = now.variables.find((row) => row.leaf && row.node === node);
      const value = variable && !variable.value.startsWith("norm") ? variable.value : "";
      const size = tensor === null ? "" : bytes(this.trace.tensors[tensor].nbytes);
      if (texts[0]) texts[0].textContent = shortened([size, value].filter(Boolean).join("  "), room);
      if (texts[1])
        texts[1].textContent = variable && variable.grad !== null ? shortened(`∇ ${variable.grad}`, room) : "";
      return;
    }
    const row = now.nodes.get(node);
    let k = 0;
    this.trace.nodes[node].slots.forEach((slot, i) => {
      if (slot.empty || !texts[k]) return;
      const [state, version] = row.slots[i];
      let what = state;
      if (state === "modified") what = `▲ v${version} ≠ v${slot.version}`;
      else if (state === "alive") what = slot.nbytes === null ? "" : bytes(slot.nbytes);
      texts[k].textContent = shortened(`${slot.name}  ${what}`, room);
      texts[k].setAttribute("class", state === "alive" ? "" : state.replace(" ", "-"));
      const held = HELD.has(state) ? "held" : "";
      ports[k].setAttribute("class", `port ${held} ${state === "modified" ? "modified" : ""}`);
      k += 1;
    });
    if (row.state === "freed" && !k) title.textContent = `${shortened(box.title, room - 7)}  freed`;
  }

  /** Return the bytes of activations (or of leaves) that nodes hold, and those that another node saved first. */
  heldBy(nodes, now, leaves) {
    const seen = new Map();
    const shared = new Map();
    const inside = new Set(nodes);
    const counts = (tensor) => tensor == null || inside.has(now.tensors.get(tensor).first);
    for (const node of nodes) {
      if (leaves) {
        const { tensor } = this.trace.nodes[node];
        if (tensor !== null) seen.set(tensor, this.trace.tensors[tensor].nbytes);
        continue;
      }
      this.trace.nodes[node].slots.forEach((slot, i) => {
        const held = !slot.empty && slot.role === "activation" && HELD.has(now.nodes.get(node).slots[i][0]);
        if (held) (counts(slot.tensor) ? seen : shared).set(slot.tensor ?? `${node} ${i}`, slot.nbytes ?? 0);
      });
    }
    return [seen, shared].map((found) => [...found.values()].reduce((sum, size) => sum + size, 0));
  }

  /** Draw flags on the upper edge of a box, from the right. */
  showFlags(box, flags, kinds) {
    let right = box.x + box.width + 6;
    flags.replaceChildren(
      ...kinds.flatMap(([kind, words]) => {
        right -= pillWidth(words) + 3;
        return this.drawPill(kind, { words, x: right, y: box.y - 8, width: pillWidth(words), height: 16 });
      }),
    );
  }

  /** Return words on a coloured ground, and add their place to the labels. */
  drawPill(kind, place) {
    const { words, x, y, width, height } = place;
    this.labels.push(place);
    return [
      shape("rect", { class: `flag ${kind}`, x, y, width, height, rx: height / 2 }),
      " ",
      shape("text", { class: `flag ${kind}`, x: x + width / 2, y: y + height / 2 + 4 }, words),
    ];
  }

  showThing(thing, { group, size, names, tie }, now, before, did) {
    const held = now.tensors.get(thing.tensor);
    const inItsPlace = ({ x, y, tensor }) => x === thing.x && y === thing.y && now.tensors.has(tensor);
    const ghost = !held && did.left.includes(thing.tensor) && !this.view.tensors.some(inItsPlace);
    group.classList.toggle("absent", !held && !ghost);
    group.classList.toggle("gone", ghost);
    group.classList.toggle("new", did.arrived.includes(thing.tensor) && before.nodes.size > 0);
    const version = Math.max(0, ...(held?.names ?? []).map(({ version: count }) => count ?? 0));
    const old = Math.max(0, ...(before.tensors.get(thing.tensor)?.names ?? []).map(({ version: count }) => count ?? 0));
    group.classList.toggle("modified", Boolean(held) && version > old && before.tensors.has(thing.tensor));
    const text = bytes(this.trace.tensors[thing.tensor].nbytes);
    size.textContent = version && thing.width > 64 ? `${text} v${version}` : text;
    const called = (held?.names ?? []).map(({ name }) => name);
    const letters = Math.max(0, thing.letters ?? Math.floor((thing.room - NAMES) / 7.2));
    names.textContent = ghost ? (thing.room > 34 ? "gone" : "") : shortened(listed(called, 3), letters);
    const [width, right] = [names.textContent.length * 7.2, thing.x + thing.width];
    const [x, y] = thing.below
      ? [right - width, thing.y + thing.height + 5]
      : [right + NAMES, thing.y + thing.height / 2 - 6];
    this.labels.push({ x, y, width, height: 13 });
    tie.classList.toggle("absent", !called.length);
    group.setAttribute("aria-description", describeTensor(this.trace, thing.tensor, held, ghost));
  }

  light({ nodes, tensors }) {
    for (const [box, { group }] of this.boxes)
      group.classList.toggle(
        "lit",
        box.nodes.some((node) => nodes.has(node)),
      );
    for (const [thing, { group }] of this.things) group.classList.toggle("lit", tensors.has(thing.tensor));
    for (const line of this.references.children) {
      line.classList.toggle("lit", tensors.has(Number(line.dataset.tensor)) || nodes.has(Number(line.dataset.node)));
    }
  }

  /** Mark the nodes or tensors that may be chosen, the picked ones and, after the answer, the `right` ones. */
  offer(kind, choices, picked, right = null) {
    this.offered = [kind, choices, picked, right];
    const mark = (group, ids) => {
      const has = (set) => ids.some((id) => set?.has(id));
      group.classList.toggle("choice", !right && has(choices));
      group.classList.toggle("picked", has(picked));
      group.classList.toggle("right", has(right));
    };
    for (const [{ nodes }, { group }] of this.boxes) {
      const leaves = kind === "tensor" ? nodes.filter((node) => this.trace.nodes[node].leaf) : [];
      mark(group, kind === "node" ? nodes : leaves.map((leaf) => this.trace.nodes[leaf].tensor));
    }
    for (const [{ tensor }, { group }] of this.things) mark(group, kind === "tensor" ? [tensor] : []);
  }

  key(event) {
    const shown = [...this.svg.querySelectorAll("[role=button]:not(.absent)")];
    pressed(event, shown, (group) => this.roving(group));
    if (event.key !== "Escape" || this.view.parent == null) return;
    this.enter(this.view.parent);
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Put blanks, which are not drawn, before texts, which would run together in the name of a button. */
const apart = (texts) => texts.flatMap((text) => [" ", text]);

const pillWidth = (words) => words.length * LETTER + 10;

/** Return an SVG path through points, with rounded corners. */
function smooth(points) {
  const [first, ...rest] = points;
  let path = `M${first}`;
  let [x, y] = first;
  for (const [nextX, nextY] of rest) {
    const half = (y + nextY) / 2;
    path += Math.abs(nextX - x) < 1 ? `L${nextX} ${nextY}` : `C${x} ${half} ${nextX} ${half} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return path;
}
