// A trace as it is stored: what many parts have in common is there once, and an index is told by its
// distance from the one before. Here it becomes what the player reads.

/** From distances to indices; null stays null. */
function indices() {
  let last = 0;
  return (distance) => distance == null ? null : (last += distance);
}

const named = (names, values) => Object.fromEntries(names.map((name, k) => [name, values[k]]));

const SLOT = ["name", "empty", "shape", "dtype", "nbytes", "version", "role"];
const TENSOR = ["label", "shape", "dtype", "nbytes", "role", "line"];
const BOX = ["kind", "x", "y", "width", "height", "rows"];
const THING = ["box", "x", "y", "width", "height", "room"];
const EDGE = ["start", "end", "bends"];

/**
 * The trace with `nodes`, `tensors`, `steps` and `views` in full. A step's `changed` are rows
 * `[node, state, [[state, version] of each slot]]`, its `variables` all rows there.
 */
export function unpacked(trace) {
  return { ...trace, nodes: nodesOf(trace), tensors: trace.tensors.map((values) => named(TENSOR, values)), steps: stepsOf(trace), views: viewsOf(trace) };
}

function nodesOf({ kinds, nodes }) {
  const [order, tensor] = [indices(), indices()];
  const known = kinds.map(([name, label, leaf, slots]) => ({ name, label, leaf, slots: slots.map((slot) => named(SLOT, slot)) }));
  return nodes.map(([kind, line, call, made, own, links, saved], i) => ({
    ...known[kind], line, call, order: order(made), tensor: tensor(own), next: links.map((link) => i + link),
    slots: known[kind].slots.map((slot, k) => ({ ...slot, tensor: tensor(saved[k]) })),
  }));
}

function stepsOf({ states, rows, steps }) {
  let variables = [];
  return steps.map((step) => {
    const [start, removed, ...rest] = step.variables;
    if (removed || rest.length) variables = [...variables.slice(0, start), ...rest.map((row) => rows[row]), ...variables.slice(start + removed)];
    const node = indices();
    const changed = step.changed.flatMap((number, k, pairs) => (k % 2 ? [] : [[node(number), ...states[pairs[k + 1]]]]));
    return { ...step, changed, gone: step.gone.map(indices()), variables };
  });
}

function viewsOf({ views, places }) {
  const made = views.map(({ title, parent, place, titles, opens, nodes, things }) => {
    const { width, height, boxes, things: spots, edges } = places[place];
    const [node, tensor] = [indices(), indices()];
    return {
      title, parent, width, height,
      boxes: boxes.map((box, k) => ({ ...named(BOX, box), title: titles[k], view: opens[k], nodes: nodes[k].map(node) })),
      things: spots.map((spot, k) => ({ ...named(THING, spot), tensor: tensor(things[k]) })),
      edges: edges.map((edge) => named(EDGE, edge)),
    };
  });
  for (const { boxes } of [...made].reverse()) { // inner views come after outer ones
    for (const box of boxes) {
      if (box.kind === "group") box.nodes = made[box.view].boxes.flatMap(({ kind, nodes }) => (kind === "outside" ? [] : nodes));
    }
  }
  return made;
}
