// References: from the node that saved a tensor, from a variable, and dotted from a named tensor to its `grad_fn`.

import { shape } from "./dom.js";
import { HELD } from "./timeline.js";

const SCISSORS = 14; // their width and height
const LINE = 16; // of a box: the title is row 0, each slot has a row below it

/**
 * Return the point on the right edge of a box at row `row`.
 * @returns {[number, number]}
 */
export const port = (box, row) => [box.x + box.width, box.y + 16 + LINE * row];

/** Return a curve from a port to a rectangle, which arrives at its left side if that is further right. */
function way([x, y], thing) {
  const middle = thing.y + thing.height / 2;
  if (thing.x >= x - 2) {
    const reach = Math.max(10, Math.min(60, (thing.x - x) / 2 + Math.abs(middle - y) / 6));
    return [
      [x, y],
      [x + reach, y],
      [thing.x - reach, middle],
      [thing.x, middle],
    ];
  }
  const below = middle > y;
  const end = [thing.x + thing.width / 2, below ? thing.y : thing.y + thing.height];
  const reach = Math.max(34, Math.min(120, Math.abs(end[1] - y) / 2));
  return [[x, y], [x + reach, y], [end[0], end[1] + (below ? -reach : reach)], end];
}

const path = ([a, b, c, d]) => `M${a}C${b} ${c} ${d}`;

/** Return the point of a curve at `t`, from 0 at its beginning to 1 at its end. */
const along = ([a, b, c, d], t) =>
  [0, 1].map((i) => (1 - t) ** 3 * a[i] + 3 * t * (1 - t) ** 2 * b[i] + 3 * t ** 2 * (1 - t) * c[i] + t ** 3 * d[i]);

const reference = (kind, points) =>
  shape("path", { class: `reference ${kind}`, d: path(points), ...(kind === "cut" && { pathLength: 100 }) });

/** Return the first of `places` that overlaps none of the rectangles `taken`, if any. */
export const clear = (places, taken) =>
  places.find(({ x, y, width, height }) =>
    taken.every(
      (other) =>
        x >= other.x + other.width || other.x >= x + width || y >= other.y + other.height || other.y >= y + height,
    ),
  );

/** Return the place nearest the middle of a curve where scissors cover no label and no box, or at least no label. */
function scissorsOn(points, labels, boxes) {
  const places = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8].map((t) => {
    const [x, y] = along(points, t);
    return { x: x - SCISSORS / 2, y: y - SCISSORS / 2, width: SCISSORS, height: SCISSORS };
  });
  return clear(places, [...labels, ...boxes]) ?? clear(places, labels) ?? places[0];
}

/**
 * Return the references of a view at a step as SVG elements. `boxAt` finds the box of a node, `thingAt` that of a
 * tensor. Scissors are put where they cover no label, and become labels.
 */
export function references(trace, now, before, { boxAt, thingAt, alone, labels, boxes }) {
  const drawn = [];
  const ends = new Set();
  const isNew = (key) => !ends.has(key) && ends.add(key);
  const tie = (kind, node, slot, tensor) => {
    const [box, thing] = [boxAt(node), thingAt(tensor)];
    if (!box || !thing || box === thing) return;
    const single = alone(box);
    if (!single && (thing.kind === "leaf" || thing.kind === "group")) return; // an arrow says so already
    const row = single ? trace.nodes[node].slots.slice(0, slot).filter(({ empty }) => !empty).length + 1 : 1;
    if (!isNew(`${kind} ${box.x} ${box.y} ${row} ${tensor}`)) return;
    const points = way(port(box, row), thing);
    const made = reference(thing.kind === "leaf" ? `${kind} leaf` : kind, points);
    made.dataset.node = node;
    made.dataset.tensor = tensor;
    drawn.push(made);
    if (kind === "cut") {
      const scissors = scissorsOn(points, labels, boxes);
      labels.push(scissors);
      drawn.push(shape("text", { class: "scissors", x: scissors.x + SCISSORS / 2, y: scissors.y + 12 }, "✂"));
    }
  };
  for (const [node, row] of now.nodes) {
    trace.nodes[node].slots.forEach(({ empty, tensor }, slot) => {
      if (empty || tensor == null) return;
      if (HELD.has(row.slots[slot][0]))
        tie(row.slots[slot][0] === "modified" ? "saved modified" : "saved", node, slot, tensor);
      else if (HELD.has(before.nodes.get(node)?.slots[slot][0])) tie("cut", node, slot, tensor);
    });
  }
  for (const variable of now.variables) {
    const [box, thing] = [boxAt(variable.node), thingAt(variable.tensor)];
    if (!box || !thing || box === thing || variable.leaf) continue;
    if (!isNew(`made ${box.x} ${box.y} ${variable.tensor}`)) continue;
    const from =
      thing.x >= box.x + box.width
        ? [thing.x, thing.y + thing.height - 4]
        : [thing.x + thing.width / 2, thing.y + thing.height];
    const to = [box.x + box.width, box.y + 12];
    const bend = Math.max(8, Math.abs(from[0] - to[0]) / 3);
    drawn.push(reference("made", [from, [from[0] - bend, from[1]], [to[0] + bend, to[1]], to]));
  }
  return drawn;
}
