// Edits that the reader may make: where to click for them, the same as a menu, and the edited program as a cell.

import { element, plural } from "./dom.js";

const word = /\w/;

/** Return the part of a line that differs in `other`; `from` and `to` are in the line, `size` is that of the new text. */
export function difference(line, other) {
  const most = Math.min(line.length, other.length);
  let from = 0;
  while (from < most && line[from] === other[from]) from += 1;
  let end = 0;
  while (end < most - from && line[line.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const to = line.length - end;
  return { from, to, size: other.length - end - from, isInsertion: from === to };
}

/** Return where to click in a line to turn it into `other`: the bounds of the words around the difference. */
function target(line, other) {
  let { from, to } = difference(line, other);
  if (from === to && line[from - 1] === "(") from -= 1; // an argument: its call
  if (line[to] === ")" && line[from] === "(") to += 1;
  while (from > 0 && word.test(line[from - 1])) from -= 1;
  while (to < line.length && word.test(line[to])) to += 1;
  const indent = line.search(/\S/);
  return [Math.max(from, indent), Math.max(to, indent + 1)];
}

/** Return the rows of a program in which nothing can be edited. */
export const unedited = (program) =>
  Object.entries(program).map(([number, text]) => ({ number: Number(number), text, sign: "" }));

export class Edits {
  /**
   * @param {{ name: string, kind: string, options: string[], edits: any[], combinations: number[][],
   *   sizes: Record<string, number>[], cell: any }} control
   * @param {Record<string, string>} source of the program as written
   * @param {(option: number) => void} onChange
   */
  constructor(control, source, onChange) {
    this.control = control;
    this.source = source;
    this.onChange = onChange;
    this.option = 0;
    this.panel = element("div", { class: "panel", role: "group", "aria-label": "Edits of the program", hidden: true });
    const quiet = (text, onclick, attributes = {}) =>
      element("button", { class: "quiet", onclick, ...attributes }, text);
    this.opener = quiet("", () => this.toggleMenu(), { title: "e", "aria-expanded": "false" });
    this.note = element("p", { class: "note", role: "status" });
    this.box = element(
      "div",
      { class: "edits", onkeydown: (event) => event.key === "Escape" && this.toggleMenu(false) },
      this.opener,
      this.panel,
    );
    this.checks = control.edits.map((edit, k) => {
      const check = element("input", { type: "checkbox", onchange: () => this.toggle(k) });
      const lines = Object.entries(edit.changes).flatMap(([line, texts]) => [
        ...(texts.includes(null) ? [] : [["−", source[line]]]),
        ...texts.map((text) => (text === null ? [" ", source[line]] : ["+", text])),
      ]);
      const listing = lines.map(([sign, text]) => `${sign} ${text.trim()}`).join("\n");
      const label = element("label", {}, check, element("span", {}, edit.name), element("pre", {}, listing));
      this.panel.append(label);
      return check;
    });
    this.draft = element("textarea", { class: "mono", "aria-label": "Your program" });
    const runDraft = () => {
      this.note.textContent = "Running …";
      this.run(this.draft.value);
    };
    const button = element("button", { onclick: runDraft }, "Run this program");
    this.own = element("div", { hidden: true }, this.draft, button);
    const copy = quiet("Copy as a cell", () => this.copy());
    this.panel.append(element("div", { class: "commit" }, copy), this.note, this.own);
  }

  /** The indices of the edits that are made; none in a program of the reader's own. */
  get active() {
    return this.control.combinations[this.option] ?? [];
  }

  /**
   * Show an option, null for a program of the reader's own.
   * @param {number | null} option
   * @param {Record<string, string>} program the lines that ran
   * @param {Record<string, number>} setting the option of each control
   */
  show(option, program, setting) {
    this.option = option;
    this.program = program;
    this.setting = setting;
    this.checks.forEach((check, k) => (check.checked = this.active.includes(k)));
    const state = option === null ? ": your own" : this.active.length ? `: ${plural(this.active.length, "edit")}` : "";
    this.opener.textContent = `✎ Edit the program${state}`;
    this.opener.classList.toggle("active", option !== 0);
    this.note.textContent = "";
    if (!this.panel.contains(document.activeElement)) this.draft.value = this.text;
  }

  /** The program that is shown, as text. */
  get text() {
    return Object.values(this.program).join("\n");
  }

  toggleMenu(open = this.panel.hidden) {
    if (this.opener.getAttribute("aria-disabled") === "true") return;
    const inside = this.box.contains(this.box.getRootNode().activeElement);
    this.panel.hidden = !open;
    this.opener.setAttribute("aria-expanded", String(open));
    if (!open && inside) this.opener.focus();
  }

  /** Open the menu, and focus the first of `edits`, by default the first of all. */
  reveal(edits) {
    this.toggleMenu(true);
    this.checks[edits[0] ?? 0].focus();
  }

  /** Make or undo the edit at a clicked place; if it has several, open the menu to choose one. */
  choose(edits) {
    if (edits.length === 1) this.toggle(edits[0]);
    else this.reveal(edits);
  }

  /** Make an edit, in place of those that it excludes, or undo it. */
  toggle(k) {
    const isUndone = this.active.includes(k);
    const wanted = isUndone ? this.active.filter((other) => other !== k) : [...this.active, k];
    const fits = (edits) => edits.every((edit) => wanted.includes(edit)) && (isUndone || edits.includes(k));
    this.onChange(this.control.combinations.map(fits).lastIndexOf(true)); // the largest is the last
  }

  /**
   * Return the listing of the program that ran: rows `{ number, text, sign, line, spans }`. `line` is that of the
   * program as written; a row without a number is no longer there; `spans` are `{ from, to, edits, isActive }`.
   */
  rows() {
    if (this.option === null) return unedited(this.program);
    const sizes = this.control.sizes[this.option];
    let number = Number(Object.keys(this.source)[0]);
    return Object.entries(this.source).flatMap(([key, text]) => {
      const line = Number(key);
      const numbers = Array.from({ length: sizes[key] ?? 1 }, (_, i) => number + i);
      number += numbers.length;
      return this.rowsOf(line, text, numbers);
    });
  }

  rowsOf(line, text, numbers) {
    const { edits } = this.control;
    const touching = edits.map((_, k) => k).filter((k) => line in edits[k].changes);
    const active = touching.filter((k) => this.active.includes(k));
    const change = numbers.length === 1 ? difference(text, this.program[numbers[0]]) : null;
    const rows = numbers.map((number) => {
      const now = this.program[number];
      if (now === text) return { number, text, sign: "", line, spans: this.spans(line, text, touching) };
      const [from, to] = change?.isInsertion
        ? [change.from, change.from + change.size]
        : [now.search(/\S/), now.length];
      const spans = [{ from, to, edits: active, isActive: true }];
      return { number, text: now, sign: "+", line: change && line, spans };
    });
    const last = rows.at(-1);
    if (last?.sign) {
      const end = last.text.length; // where other edits may still add lines
      for (const { from, to, edits: others } of this.spans(line, text, touching))
        if (from === to && !active.includes(others[0]))
          last.spans.push({ from: end, to: end, edits: others, isActive: false });
    }
    if (change?.isInsertion || rows.some(({ sign }) => !sign)) return rows;
    const spans = [{ from: text.search(/\S/), to: text.length, edits: active, isActive: true }];
    return [{ number: null, text, sign: "−", line, spans }, ...rows];
  }

  /**
   * Return what can be clicked in a line as it was written: the words that an edit changes, or, for edits that only
   * add or remove lines, a mark at the line's end. Places that overlap are joined.
   */
  spans(line, text, touching) {
    const { edits } = this.control;
    const spans = [];
    for (const k of touching) {
      const isChange = (at) => edits[k].changes[at].length === 1 && edits[k].changes[at][0] !== null;
      if (!isChange(line) && Object.keys(edits[k].changes).some(isChange)) continue; // there it can be clicked
      const end = text.length;
      const [from, to] = isChange(line) ? target(text, edits[k].changes[line][0]) : [end, end];
      const other = spans.find((span) => (from === to ? span.from === end : from < span.to && span.from < to));
      if (other) {
        other.from = Math.min(from, other.from);
        other.to = Math.max(to, other.to);
        other.edits.push(k);
      } else spans.push({ from, to, edits: [k], isActive: false });
    }
    return spans.sort((a, b) => a.from - b.from);
  }

  /** Map each line of the program that ran to a key that is equal in other combinations of edits. */
  keys() {
    const present = this.rows().filter(({ number }) => number !== null);
    return new Map(present.map(({ number, line, text }) => [number, line ?? text]));
  }

  /** Let the reader run a program of their own by `run(text)`; without a kernel, `run` is undefined. */
  offerDraft(run) {
    this.run = run;
    this.own.hidden = !run;
  }

  /** Return a cell with the edited program, all that it needs, and a call that plays it. */
  cell() {
    const { definitions, arguments: values } = this.control.cell;
    const name = this.text.match(/def (\w+)/)?.[1];
    const given = Object.entries(values).map(([argument, options]) => {
      const choice = this.setting[argument] ?? 0;
      return `, ${argument}=${options[choice] ?? options[0]}`;
    });
    const call = `trace(${name}${given.join("")})`;
    return [definitions, "from gradtrace import trace", "", "", this.text, "", "", call].join("\n");
  }

  /** Copy the cell; where the page may not use the clipboard, show it to be copied by hand. */
  async copy() {
    const text = element("textarea", { class: "mono", readonly: true, "aria-label": "Cell" });
    text.value = this.cell();
    this.note.replaceChildren("Paste this into a notebook.", text);
    text.select();
    await navigator.clipboard?.writeText(text.value).catch(() => {});
  }
}
