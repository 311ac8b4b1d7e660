// A view for a narrow screen: boxes beneath one another, so that the text need not shrink, and arrows on the left.

const LANE = 10; // between two arrows that go round
const GAP = 30; // between two boxes, for arrows to turn in
const NAME = 22; // the line below a tensor that names it, and some air
const REFERENCE = 26; // the least length of a reference to a tensor beside its box

/** Return the view with its boxes in one column, at most `width` wide unless a box is wider. */
export function narrowed(view, width) {
  const order = inOrder(view);
  const row = new Map(order.map((box, i) => [box, i]));
  const lanes = []; // for each, the row down to which it is taken
  const edges = view.edges.map((edge) => ({ ...edge, lane: null })).sort((a, b) => row.get(a.end) - row.get(b.end));
  for (const edge of edges) {
    const [from, to] = [row.get(edge.end), row.get(edge.start)];
    if (to - from < 2) continue;
    const free = lanes.findIndex((taken) => taken <= from);
    edge.lane = free < 0 ? lanes.length : free;
    lanes[edge.lane] = to;
  }
  const left = lanes.length && lanes.length * LANE + 8;
  const boxes = [];
  const things = [];
  let y = 0;
  for (const i of order) {
    const box = { ...view.boxes[i], x: left, y };
    const port = left + box.width;
    let bottom = y + box.height;
    let beside = y; // where the next tensor goes that has room at the side
    for (const thing of view.tensors.filter(({ box: owner }) => (owner ?? order[0]) === i)) {
      const fits = port + REFERENCE + thing.width <= width;
      const x = Math.max(0, width - thing.width);
      const top = fits ? beside : bottom + GAP / 2;
      things.push({ ...thing, x, y: top, below: true, letters: Math.floor((fits ? width - port - 4 : width) / 7.2) });
      const end = top + thing.height + NAME;
      if (fits) beside = end;
      bottom = Math.max(bottom, end);
    }
    boxes[i] = box;
    y = bottom + GAP;
  }
  for (const edge of edges) {
    const [a, b] = [boxes[edge.start], boxes[edge.end]];
    const x = (edge.lane + 1) * LANE - 4;
    edge.bends =
      edge.lane === null
        ? [[b.x + b.width / 2, a.y - GAP / 2]] // and straight up, past the text below b
        : [
            [x, a.y - GAP / 2],
            [x, b.y + b.height + GAP / 2],
          ];
  }
  const right = [...boxes, ...things].map((part) => part.x + part.width);
  return { ...view, boxes, tensors: things, edges, width: Math.max(...right), height: y - GAP };
}

/** Return the boxes in an order in which arrows lead up and connected boxes are close together. */
function inOrder({ boxes, edges }) {
  const order = new Set();
  const entered = new Set();
  const enter = (box) => {
    if (entered.has(box)) return;
    entered.add(box);
    for (const { start, end } of edges) if (start === box) enter(end);
    order.add(box);
  };
  const places = [...boxes.keys()].sort((i, j) => boxes[i].x - boxes[j].x);
  for (const box of places) if (!edges.some(({ end }) => end === box)) enter(box);
  return [...order, ...places.filter((box) => !order.has(box))];
}
