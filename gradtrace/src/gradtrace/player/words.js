// The same picture in words: for screen readers, for those who read rather than look, for the labels.

import { bytes, dimensions, element, listed, plural } from "./dom.js";

const called = ({ leaf, label, name }) => (leaf ? label : name);

/** Describe a node in words, without its name. */
export function describe(trace, now, index, changed) {
  const node = trace.nodes[index];
  const row = now.nodes.get(index);
  const parts = node.leaf ? ["a leaf"] : [];
  if (node.line !== null && !node.leaf) parts.push(`made on line ${node.line}`);
  if (node.made) parts.push(`shape ${node.made}`);
  if (node.next.length) parts.push(`backward goes on to ${listed(node.next.map((i) => trace.nodes[i].label))}`);
  let slots = 0;
  node.slots.forEach((slot, i) => {
    if (slot.empty) return;
    slots += 1;
    const [state, version] = row.slots[i];
    const what = slot.shape ? ` (${dimensions(slot.shape)} ${slot.dtype}, ${bytes(slot.nbytes)})` : "";
    const versions = state === "modified" ? `, version ${version}, saved at version ${slot.version}` : "";
    const others = state === "freed" || slot.tensor == null ? [] : otherHolders(trace, now, slot.tensor, index);
    parts.push(
      `saved ${slot.name}${what}: ${state}${versions}${others.length ? `, shared with ${listed(others)}` : ""}`,
    );
  });
  if (row.state === "hidden") parts.push("what it saves cannot be seen from Python");
  if (row.state === "freed" && !slots) parts.push("freed");
  if (changed.cut.has(index)) parts.push("freed now");
  if (changed.new.has(index)) parts.push("new");
  if (changed.gradient.has(index)) parts.push("its gradient was written now");
  if (changed.stopped.has(index)) parts.push("backward stopped here");
  return parts.join("; ");
}

function otherHolders(trace, now, tensor, index) {
  const { slots, names } = now.tensors.get(tensor) ?? { slots: [], names: [] };
  return [
    ...names.map(({ name }) => name),
    ...slots.filter(([node]) => node !== index).map(([node]) => trace.nodes[node].label),
  ];
}

export function describeGroup(box, present, freed, held, some) {
  const parts = [`${plural(present.length, "node")}, ${freed} freed`, `${bytes(held)} held`];
  if (box.outputs) parts.push(`hands on ${box.outputs}`);
  if (some.cut) parts.push(`${some.cut} freed now`);
  if (some.new) parts.push(`${some.new} new`);
  if (some.stopped) parts.push("backward stopped inside");
  if (box.view != null) parts.push(box.kind === "outside" ? "go there" : "open");
  return parts.join("; ");
}

export function describeTensor(trace, index, held, gone) {
  const { label, shape, dtype, nbytes, role } = trace.tensors[index];
  const names = (held?.names ?? []).map(({ name }) => name);
  const nodes = [...new Set((held?.slots ?? []).map(([node]) => trace.nodes[node].label))];
  const by = [names.length && `named ${listed(names)}`, nodes.length && `saved by ${listed(nodes)}`].filter(Boolean);
  const what = `${role === "activation" ? "tensor" : role}${label ? ` ${label}` : ""} (${dimensions(shape ?? [])} ${dtype}, ${bytes(nbytes)})`;
  return `${what}: ${gone ? "gone now, its last reference was dropped" : by.join("; ") || "nothing refers to it"}`;
}

/** Return lists that describe all nodes and tensors of a step. */
export function twin(trace, timeline, step) {
  const now = timeline.at(step);
  const changed = timeline.happened(step);
  const nodes = [...now.nodes.keys()].map((node) =>
    element("li", {}, [called(trace.nodes[node]), describe(trace, now, node, changed)].filter(Boolean).join("; ")),
  );
  const tensors = [...now.tensors.keys()].map((tensor) =>
    element("li", {}, describeTensor(trace, tensor, now.tensors.get(tensor), false)),
  );
  if (!nodes.length) return [element("p", {}, "No graph: no live variable has one.")];
  return [
    element("p", {}, plural(nodes.length, "node"), ":"),
    element("ul", {}, ...nodes),
    ...(tensors.length ? [element("p", {}, plural(tensors.length, "tensor"), ":"), element("ul", {}, ...tensors)] : []),
  ];
}

/** Describe what a step changed, to be read aloud; without the bytes while a question is open. */
export function announcement(trace, timeline, step, where, locked) {
  const now = trace.steps[step];
  const did = timeline.changes(step);
  const labels = (nodes) => listed(nodes.map((node) => trace.nodes[node].label));
  const named = (what) => listed([...did.variables].filter(([, all]) => all.includes(what)).map(([name]) => name));
  const parts = [`Step ${step + 1}, ${where}.${locked ? "" : ` ${bytes(now.held[0])} held.`}`];
  if (did.made.length) parts.push(`New: ${labels(did.made)}.`);
  if (did.freed.length) parts.push(`Freed: what ${labels(did.freed)} saved.`);
  if (did.left.length) parts.push(`${plural(did.left.length, "tensor")} gone.`);
  if (did.modified.length) parts.push(`Changed in place: what ${labels(did.modified)} saved.`);
  if (named("changed")) parts.push(`Changed in place: ${named("changed")}.`);
  if (named("gradient")) parts.push(`Gradient written: ${named("gradient")}.`);
  if (named("cleared")) parts.push(`Gradient cleared: ${named("cleared")}.`);
  if (now.raised) parts.push(`Line ${now.raised.line} raised ${now.raised.type}.`);
  return parts.join(" ");
}
