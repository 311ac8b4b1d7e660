// A question about the program: takes an answer and shows the reply.

import { element, marked } from "./dom.js";

const HOW = {
  line: "Choose a line of the program.",
  node: "Choose a node of the graph.",
  tensor: "Choose a tensor in the graph.",
  choice: "Choose one.",
  choices: "Choose all that apply.",
};

/** Focus a part, and scroll no further than it takes to see `seen`. */
function reach(part, seen) {
  part.focus({ preventScroll: true });
  seen.scrollIntoView({ block: "nearest" });
}

export class Question {
  /**
   * @param {any} data as Python stores it, a `Question`
   * @param {import("./player.js").Player} player
   */
  constructor(data, player) {
    this.data = data;
    this.player = player;
    this.picked = [];
    this.open = true;
    this.told = false;
    this.many = data.kind === "choices";
    this.reply = element("div", { class: "reply" });
    this.chips = element("div", { class: "chips", role: "group", "aria-label": "Answers" });
    this.check = element("button", { class: "check", onclick: () => this.commit() }, "Check");
    this.tell = element("button", { class: "quiet", onclick: () => this.commit(true) }, "Show me");
    this.again = element("button", { class: "quiet", onclick: () => this.ask() }, "Ask me again");
    this.hint = element("span", { class: "hint" });
    const badge = element("span", { class: "badge" }, "Predict");
    const prompt = element("p", { class: "prompt" }, badge, element("span", {}, ...marked(data.prompt)), this.again);
    const commit = element("div", { class: "commit" }, this.check, this.tell, this.hint);
    const about = { class: "question", role: "group", "aria-label": "Question" };
    this.box = element("div", about, prompt, this.chips, commit, this.reply);
    this.draw();
  }

  /** Return the choice with this id, if any; ids are compared as text, because the keys of JSON are text. */
  choice(id) {
    return this.data.choices.find((choice) => String(choice.id) === String(id));
  }

  get ids() {
    return new Set(this.data.choices.map(({ id }) => id));
  }

  get right() {
    const { picked, many, data } = this;
    const hits = picked.filter((id) => data.right.includes(id));
    return hits.length === picked.length && hits.length >= (many ? data.right.length : 1);
  }

  /** Choose an id; return false if that is impossible. A second time gives the answer, or unchooses one of several. */
  pick(id) {
    const choice = this.choice(id);
    if (!this.open || !choice) return false;
    const there = this.picked.includes(choice.id);
    if (this.many)
      this.picked = there ? this.picked.filter((other) => other !== choice.id) : [...this.picked, choice.id];
    else if (there) this.commit();
    else this.picked = [choice.id];
    if (this.open) this.changed();
    return true;
  }

  /** Choose an id in the picture, and focus the button that gives the answer. */
  pickThere(id) {
    if (this.pick(id)) reach(this.check, this.check.parentNode);
  }

  commit(told = false) {
    if (!this.open || (!told && !this.picked.length)) return;
    this.stay((part) => `${part.offsetHeight}px`);
    this.open = false;
    this.told = told;
    if (told) this.picked = [];
    this.changed();
    this.player.answered(this.picked, this.right, told);
    reach(this.again, this.box);
  }

  /** Show the answer that was given before. */
  restore({ answer, told }) {
    this.picked = answer.map((id) => this.choice(id)?.id).filter((id) => id !== undefined);
    this.open = !told && !this.picked.length;
    this.told = told;
    this.draw();
  }

  /** Set the heights of question and desk by `height(part)`, so that a long reply moves nothing below them. */
  stay(height) {
    const desk = this.box.closest(".desk");
    this.box.style.minHeight = height(this.box);
    if (!desk.classList.contains("graphless")) desk.style.maxHeight = height(desk);
  }

  /** Open the question again, without a choice. */
  reopen() {
    this.stay(() => "");
    if (!this.open) Object.assign(this, { picked: [], open: true, told: false });
    this.draw();
  }

  ask() {
    this.player.ask();
    (this.chips.firstElementChild ?? this.check).focus({ preventScroll: true }); // the button that had it is gone
  }

  changed() {
    this.draw();
    this.player.questionChanged();
  }

  draw() {
    const { data, open, picked } = this;
    const inPicture = ["line", "node", "tensor"].includes(data.kind);
    const chips = data.choices.filter(
      ({ id }) => (!inPicture || typeof id !== "number") && (open || data.right.includes(id) || picked.includes(id)),
    );
    const focused = this.chips.getRootNode().activeElement?.dataset?.id;
    this.chips.replaceChildren(
      ...chips.map(({ id, label }) => {
        const right = !open && data.right.includes(id);
        const isPicked = picked.includes(id);
        const about = {
          "data-id": id,
          class: `chip ${isPicked ? "picked" : ""} ${right ? "right" : ""}`,
          "aria-pressed": String(isPicked),
          "aria-disabled": String(!open),
          onclick: () => this.pick(id),
        };
        const sign = right ? "✓ " : !open && isPicked ? "✗ " : "";
        return element("button", about, sign, ...marked(String(label)));
      }),
    );
    if (focused !== undefined) [...this.chips.children].find((chip) => chip.dataset.id === focused)?.focus();
    this.box.classList.toggle("open", open);
    this.check.parentNode.hidden = !open;
    this.again.hidden = open;
    this.check.setAttribute("aria-disabled", String(!picked.length));
    const chosen = picked.map((id) => this.choice(id).label ?? id);
    this.hint.replaceChildren(
      ...(open ? (picked.length ? ["You chose ", ...marked(chosen.join(", ")), "."] : [HOW[data.kind]]) : []),
    );
    this.reply.replaceChildren(...(open ? [] : this.answer()));
    this.reply.className = `reply ${open ? "" : this.told ? "told" : this.right ? "yes" : "no"}`;
  }

  answer() {
    const { data, picked, told } = this;
    if (told) return [element("p", {}, ...marked(data.explanation))];
    const said = picked.map((id) => this.choice(id).label ?? String(id));
    const missed = this.many ? data.right.filter((id) => !picked.includes(id)) : [];
    const wrong = this.many ? picked.filter((id) => !data.right.includes(id)) : picked;
    const replies = [...(this.many && this.right ? picked : wrong), ...missed].map((id) => [
      `${missed.includes(id) ? "Missed: " : ""}${this.choice(id)?.label ?? id}`,
      data.replies[String(id)],
    ]);
    return [
      element(
        "p",
        {},
        element("strong", {}, this.right ? "✓ Right. " : wrong.length ? "✗ Not right. " : "◐ Right, but not all. "),
        "You chose ",
        ...marked(said.join(", ")),
        this.many ? "." : ": ",
        ...(this.many ? [] : marked(replies[0]?.[1] ?? "")),
      ),
      ...(this.many ? replies.map(([label, text]) => element("p", {}, ...marked(`${label}: ${text ?? ""}`))) : []),
      ...(this.right || this.many ? [] : this.beyond(replies[0][1] ?? "")),
    ];
  }

  /** Return the explanation without the sentences of the reply, if any remain. */
  beyond(reply) {
    const [fact] = reply.split(".");
    const sentences = this.data.explanation.split(/(?<=\.) /);
    const rest = sentences.filter((text) => !(fact && text.startsWith(fact)) && !reply.includes(text)).join(" ");
    return rest ? [element("p", { class: "told" }, ...marked(rest))] : [];
  }
}
