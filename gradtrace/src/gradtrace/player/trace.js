// A trace as it is stored: what many parts have in common is there once, and an index is told by its
// distance from the one before. Here it becomes what the player reads.

/** From distances to indices; null stays null. */
function indices() {
  let last = 0;
  return (distance) => (distance == null ? null : (last += distance));
}

/**
 * The trace with `nodes`, `tensors`, `steps` and `views` in full. A step's `changed` are rows
 * `[node, state, [[state, version] of each slot]]`, its `variables` all rows there, its `inside` the
 * steps of the nodes that its line's backward ran.
 */
export function unpacked(trace) {
  return { ...trace, nodes: nodesOf(trace), tensors: tensorsOf(trace), steps: stepsOf(trace), views: viewsOf(trace) };
}

function nodesOf({ kinds, nodes }) {
  const [order, tensor] = [indices(), indices()];
  return nodes.map(([kind, line, call, step, own, links, saved], i) => {
    const [name, label, leaf, made, slots] = kinds[kind];
    return {
      name,
      label,
      leaf,
      made,
      line,
      call,
      order: order(step),
      tensor: tensor(own),
      next: links.map((link) => i + link),
      slots: slots.map(([slot, empty, shape, dtype, nbytes, version, role], k) => ({
        name: slot,
        empty,
        shape,
        dtype,
        nbytes,
        version,
        role,
        tensor: tensor(saved[k]),
      })),
    };
  });
}

const tensorsOf = ({ tensors }) =>
  tensors.map(([label, shape, dtype, nbytes, role, line]) => ({ label, shape, dtype, nbytes, role, line }));

const EMPTY = { peak: null, device: null, values: [], raised: null, unrecorded: 0 }; // what a step leaves out

function stepsOf(trace) {
  let before = { variables: [] };
  return trace.steps.map((stored) => {
    let inner = before;
    const inside = (stored.inside ?? []).map((item) => (inner = insideOf(item, inner, stored.ran, trace)));
    before = { ...EMPTY, ...stored, ...lists(stored, before, trace), inside };
    return before;
  });
}

/** What a step says of nodes and variables, in full. */
function lists({ changed = [], gone = [], variables: edit }, { variables }, { states, rows }) {
  if (edit) {
    const [start, removed, ...rest] = edit;
    if (removed || rest.length)
      variables = [...variables.slice(0, start), ...rest.map((row) => rows[row]), ...variables.slice(start + removed)];
  }
  const node = indices();
  const told = [];
  for (let k = 0; k < changed.length; k += 2) told.push([node(changed[k]), ...states[changed[k + 1]]]);
  return { changed: told, gone: gone.map(indices()), variables };
}

const RUN = { call: 1, depth: 0, written: null, released: [], returned: 0, hooks: [], recomputed: [] };

/** A node's step, which leaves out what is as it was; one that stopped has an error of its own. */
function insideOf(item, before, line, trace) {
  const { kinds, nodes } = trace;
  const run = { ...RUN, ...item.run };
  const { held = before.held, gradients = before.gradients, node = kinds[nodes[run.node][0]][0] } = item;
  const raised = run.passed ? null : { line, node: run.node };
  return {
    line,
    ran: null,
    node,
    run,
    raised,
    held,
    gradients,
    peak: null,
    device: null,
    ...lists(item, before, trace),
  };
}

function viewsOf({ views, places }) {
  const made = views.map((view) => new View(view, places[view.place]));
  for (let k = made.length - 1; k >= 0; k -= 1) made[k].fill(made); // inner views come after outer ones
  return made;
}

/** What is shown at once; `nodes` are those of each box. Its parts are made when it is opened: few are. */
class View {
  constructor(stored, place) {
    this.stored = stored;
    this.place = place;
    this.title = stored.title;
    this.parent = stored.parent;
    this.width = place.width;
    this.height = place.height;
    this.made = null; // the boxes, once they were asked for
    const node = indices();
    this.nodes = stored.nodes.map((some) => some.map(node));
  }

  /** The nodes of a group are those inside of the view that it opens. */
  fill(views) {
    this.place.boxes.forEach(([kind], k) => {
      if (kind !== "group") return;
      const { place, nodes } = views[this.stored.opens[k]];
      this.nodes[k] = nodes.filter((_, i) => place.boxes[i][0] !== "outside").flat();
    });
  }

  get boxes() {
    const { titles, opens, made, ends } = this.stored;
    return (this.made ??= this.place.boxes.map(([kind, x, y, width, height, rows], k) => ({
      kind,
      title: titles[k],
      nodes: this.nodes[k],
      view: opens[k],
      outputs: made[k],
      end: ends.includes(k),
      rows,
      x,
      y,
      width,
      height,
    })));
  }

  get things() {
    const tensor = indices();
    return this.place.things.map(([box, x, y, width, height, room], k) => ({
      tensor: tensor(this.stored.things[k]),
      box,
      x,
      y,
      width,
      height,
      room,
    }));
  }

  get edges() {
    return this.place.edges.map(([start, end, bends]) => ({ start, end, bends }));
  }
}
