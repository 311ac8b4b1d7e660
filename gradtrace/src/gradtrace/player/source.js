// The program: which line runs next, which has just run, what it did, and lines as answers.

import { element, plural, pointedAt, pressed, signed } from "./dom.js";
import { coloured, tokenize } from "./python.js";

const HANG = 2; // further than the line itself, in characters

export class Source {
  /** @param {import("./player.js").Player} player */
  constructor(player) {
    this.player = player;
    this.list = element("div", { class: "lines" });
    const about = { class: "source mono", role: "group", "aria-label": "Source code", tabindex: "-1" };
    this.box = element("div", about, this.list);
    this.lines = new Map();
    this.box.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show a program; `rows` are its lines and those that edits removed, as `Edits.rows` lists them. */
  setTrace(trace, rows) {
    this.trace = trace;
    this.lines.clear();
    const words = tokenize(rows.map(({ text }) => text));
    this.statement = new Map(); // line → first line of its statement
    for (const [first, last] of Object.entries(trace.statements)) {
      for (let line = Number(first); line <= last; line += 1) this.statement.set(line, Number(first));
    }
    const skipped = new Set(trace.skipped ?? []);
    const items = rows.map((row, i) => this.drawRow(row, words[i]));
    for (const number of skipped)
      this.lines.get(number)?.item.classList.add("skipped", ...(skipped.has(number - 1) ? [] : ["first"]));
    this.list.replaceChildren(...items);
    this.lines.values().next().value?.item.setAttribute("tabindex", "0");
  }

  /** Draw a line, which can be chosen unless an edit removed it. */
  drawRow(row, words) {
    const { number, text, sign } = row;
    const isRemoved = number === null;
    const statement = this.statement.get(number) ?? number;
    const mark = element("span", { class: "mark", "aria-hidden": "true" });
    const flags = element("span", { class: "flags" });
    const about = {
      role: "button",
      tabindex: "-1",
      class: sign && "added",
      "data-line": number,
      onclick: () => getSelection().isCollapsed && this.player.pickLine(statement),
      ...pointedAt(this.player, "line", statement),
    };
    const item = element(
      "div",
      isRemoved ? { class: "removed", "aria-hidden": "true" } : about,
      mark,
      element("span", { class: "number" }, isRemoved ? sign : String(number)),
      " ",
      element("span", { class: "text", style: hang(text) }, ...this.drawText(row, words), flags),
    );
    if (!isRemoved) this.lines.set(number, { item, mark, flags, sign });
    return item;
  }

  /** Return the words of a row, with places to click for an edit; the menu offers the same to the keyboard. */
  drawText({ text, spans = [] }, words) {
    let at = 0;
    const parts = spans.flatMap(({ from, to, edits, isActive }) => {
      const before = coloured(slice(words, at, from));
      at = to;
      const onclick = (event) => {
        if (!getSelection().isCollapsed || this.player.locked) return;
        this.player.edits.choose(edits);
        event.stopPropagation();
      };
      const shown = from === to ? [element("span", { class: "pen" }, " ✎")] : coloured(slice(words, from, to));
      return [...before, element("span", { class: isActive ? "edit" : "can-edit", onclick }, ...shown)];
    });
    return [...parts, ...coloured(slice(words, at, text.length))];
  }

  /** Mark the lines of the step `now`; `did` are the flags of the line that led to it. */
  show(now, did) {
    const failed = now.raised?.line ?? null;
    const end = this.trace.statements[now.line] ?? now.line;
    for (const [number, drawn] of this.lines) {
      const { item, mark, flags } = drawn;
      const isNext = now.line !== null && number >= now.line && number <= end;
      item.classList.toggle("next", isNext);
      item.classList.toggle("failed", number === failed);
      item.classList.toggle("ran", number === now.ran && number !== failed);
      [mark.textContent, drawn.state] = marking(number, now);
      const told = number === (failed ?? now.ran ?? (now.run && now.line)) ? did : [];
      flags.replaceChildren(...told.map(([kind, sign, text]) => signed(kind, sign, text)));
    }
    this.line = now.line ?? failed ?? now.ran;
    this.name();
  }

  /** Set what is read aloud of each line: its text in one piece, although it may be broken, and its marks in words. */
  name() {
    for (const [number, { item, flags, sign, state }] of this.lines) {
      const is = (name) => item.classList.contains(name);
      let answer = is("picked") ? "your answer" : "";
      if (is("right")) answer = is("picked") ? "your answer, right" : "the right answer";
      if (is("choice")) answer = "";
      const did = [...flags.children].map((flag) => flag.lastChild.textContent);
      const text = `${sign ? "edited " : ""}line ${number} ${this.trace.source[number].trim() || "blank"}`;
      const said = [text, ...did, is("skipped") ? "not run" : state, answer];
      item.setAttribute("aria-label", said.filter(Boolean).join(", "));
    }
  }

  /** Scroll the current line to the middle if not all lines fit. */
  settle() {
    const item = this.lines.get(this.line)?.item;
    if (!item) return;
    if (this.box.scrollHeight > this.box.clientHeight) {
      this.box.scrollTop = item.offsetTop - (this.box.clientHeight - item.offsetHeight) / 2;
    }
    if (!this.box.contains(this.box.getRootNode().activeElement)) this.roving(item);
  }

  roving(item) {
    for (const other of this.lines.values()) other.item.setAttribute("tabindex", other.item === item ? "0" : "-1");
  }

  light(lines) {
    for (const [number, { item }] of this.lines) item.classList.toggle("lit", lines.has(number));
  }

  /** Mark the lines that may be chosen, the picked ones and, after the answer, the `right` ones. */
  offer(choices, picked, right = null) {
    for (const [number, { item }] of this.lines) {
      const offered = choices.has(number);
      item.classList.toggle("choice", offered);
      item.classList.toggle("picked", picked.has(number));
      item.classList.toggle("right", right?.has(number) ?? false);
      if (offered && !right) item.setAttribute("aria-pressed", picked.has(number));
      else item.removeAttribute("aria-pressed");
    }
    this.name();
  }

  key(event) {
    const items = [...this.lines.values()].map(({ item }) => item);
    pressed(event, items, (item) => this.roving(item));
  }
}

/** Return the mark of a line at a step, and the same in words. */
function marking(number, { raised, line, ran, run }) {
  if (number === raised?.line) return ["✗", "raised"];
  if (number === line) return ["▶", run ? "runs now" : "runs next"];
  return number === ran ? ["✓", "has just run"] : ["", ""];
}

/** Return the style that indents the rest of a long line. */
const hang = (text) => `--hang: ${Math.max(0, text.search(/\S/)) + HANG}ch`;

/** Return the words between two positions in their line. */
function slice(words, from, to) {
  let at = 0;
  return words.flatMap(([kind, text]) => {
    const part = text.slice(Math.max(0, from - at), Math.max(0, to - at));
    at += text.length;
    return part ? [[kind, part]] : [];
  });
}

/** Return what a line did as flags: `[kind, sign, text]`. */
export function deeds({ made, freed, modified, variables }) {
  const gradients = [...variables].filter(([, what]) => what.includes("gradient")).length;
  const changed = [...variables].filter(([, what]) => what.includes("changed")).length;
  return [
    made.length && ["new", "+", plural(made.length, "node")],
    freed.length && ["cut", "✂", `${freed.length} freed`],
    gradients && ["gradient", "∇", plural(gradients, "grad")],
    (modified.length || changed) && ["modified", "▲", `${modified.length || changed} changed`],
  ].filter(Boolean);
}
