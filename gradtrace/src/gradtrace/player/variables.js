// The live tensors as a table; the parameters of a module share one row until it is opened.

import { bytes, dimensions, element, plural, pointedAt, signed } from "./dom.js";

const FOLD = 4; // as many leaves of one module share a row
const HEAD = ["name", "this line", "shape", "value", "grad", "version", "requires_grad", "leaf"];
const FLAGS = {
  new: ["new", "+", "new"],
  rebound: ["bound", "↷", "bound again"],
  changed: ["modified", "▲", "changed in place"],
  gradient: ["gradient", "∇", "gradient written"],
  cleared: ["freed", "∅", "gradient cleared"],
};

// Parameters and buffers: leaves whose name has a dot, but for one in brackets, as in weights['0.bias'].
const module = (row) => (row.leaf && row.name.match(/^(?:[^.[]|\[[^\]]*\])+(?=\.)/)?.[0]) || null;

export class Variables {
  /** @param {import("./player.js").Player} player */
  constructor(player) {
    this.player = player;
    this.open = new Set();
    this.body = element("tbody");
    this.values = element("p", { class: "values mono" });
    const head = element("tr", {}, ...HEAD.map((text) => element("th", { scope: "col" }, text)));
    const caption = element("caption", {}, "Live tensors");
    const table = element("table", { class: "mono" }, caption, element("thead", {}, head), this.body);
    const about = { class: "variables", tabindex: "0", role: "group", "aria-label": "Variables" };
    this.box = element("div", about, table, this.values);
  }

  setTrace(trace) {
    this.trace = trace;
    const rows = trace.steps.map(({ variables, values }) => this.entries(variables).length + (values.length > 0));
    this.box.style.setProperty("--rows", Math.max(1, ...rows));
  }

  /** Return the rows of the table: a variable each, or one for `FOLD` or more leaves of a module. */
  entries(variables) {
    const groups = new Map();
    for (const row of variables) {
      const name = module(row);
      if (name) groups.set(name, [...(groups.get(name) ?? []), row]);
    }
    const done = new Set();
    return variables.flatMap((row) => {
      const name = module(row);
      const together = groups.get(name);
      if (!together || together.length < FOLD) return [{ row }];
      if (done.has(name)) return [];
      done.add(name);
      const inside = this.open.has(name) ? together.map((inner) => ({ row: inner, inside: true })) : [];
      return [{ name, together }, ...inside];
    });
  }

  show(variables, values, did) {
    this.shown = [variables, values, did];
    const rows = this.entries(variables).map(({ row, inside, name, together }) =>
      together ? this.group(name, together, did) : this.variable(row, inside, did.variables.get(row.name) ?? []),
    );
    if (!rows.length)
      rows.push(element("tr", {}, element("td", { class: "none", colspan: HEAD.length }, "No live tensors yet.")));
    this.body.replaceChildren(...rows);
    this.values.textContent = values.map(([name, value]) => `${name} = ${value}`).join("   ");
  }

  variable(row, inside, what) {
    const yes = (truth) => (truth ? "yes" : "no");
    const { name, shape, requires_grad, leaf, version, grad, value } = row;
    const texts = [
      dimensions(shape),
      value || "–",
      grad ?? "none",
      String(version ?? "–"),
      yes(requires_grad),
      yes(leaf),
    ];
    const about = { class: what.join(" "), "data-name": name, ...pointedAt(this.player, "name", name) };
    const head = element("th", { scope: "row", class: inside && "inside" }, name);
    const cells = texts.map((text, i) => element("td", { "data-head": HEAD[i + 2] }, text));
    return element("tr", about, head, this.says(what), ...cells);
  }

  says(what) {
    return element("td", { class: "what" }, ...what.map((kind) => signed(...FLAGS[kind])));
  }

  group(name, rows, did) {
    const open = this.open.has(name);
    const parameters = rows.filter((row) => row.requires_grad);
    const buffers = rows.length - parameters.length;
    const size = parameters.reduce((sum, { tensor }) => sum + (this.trace.tensors[tensor]?.nbytes ?? 0), 0);
    const gradients = parameters.filter((row) => row.grad !== null).length;
    const what = [...new Set(rows.flatMap((row) => did.variables.get(row.name) ?? []))];
    const onclick = () => {
      open ? this.open.delete(name) : this.open.add(name);
      this.show(...this.shown);
      this.body.querySelector(`[data-group="${CSS.escape(name)}"] button`)?.focus();
    };
    const about = { class: "fold", "aria-expanded": String(open), onclick };
    const button = element("button", about, `${open ? "▾" : "▸"} ${name}`);
    const text = `${plural(parameters.length, "parameter")}, ${bytes(size)}, ${gradients} with grad${buffers ? `; ${plural(buffers, "buffer")}` : ""}`;
    return element(
      "tr",
      { class: what.join(" "), "data-group": name },
      element("th", { scope: "row" }, button),
      this.says(what),
      element("td", { colspan: HEAD.length - 2 }, text),
    );
  }

  light(names) {
    for (const row of this.body.children) {
      const { name, group } = row.dataset;
      row.classList.toggle("lit", names.has(name) || [...names].some((lit) => group && lit.startsWith(`${group}.`)));
    }
  }
}
