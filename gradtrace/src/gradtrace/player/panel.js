// A drawing in its panel: as large as can be read, scrolled to where something happens, and zoomed.

export const MARGIN = 16; // around a view, for flags
export const READABLE = 0.92; // the smallest scale that a view opens at; below it the panel scrolls
const SMALLEST = 11; // pixels: of text, at a scale that a view opens at
export const NARROW = 420; // pixels: on less a view is laid out anew wherever it is too wide
const LARGEST = 1.1;

const highest = () => Math.max(360, Math.min(0.66 * innerHeight, 700)); // pixels

/** Return the scale at which all of a view is visible on a panel of this width. */
export const whole = ({ width, height }, panel) =>
  Math.min((panel - 2) / (width + 2 * MARGIN), highest() / (height + 2 * MARGIN), LARGEST);

export class Panel {
  /**
   * Scale the drawing to the panel's width, but not below a readable size, and set the panel's height.
   * @this {import("./graph.js").Graph}
   */
  fit() {
    this.zoomed = false;
    const room = this.stage.clientWidth;
    if (!room) return;
    const stored = this.trace.views[this.index];
    if (room !== this.room && !(this.view === stored && this.laidOut(room) === stored)) return this.open(this.index);
    this.fitted = true;
    const across = Math.min((this.scroll.clientWidth - 2) / this.wide, LARGEST);
    const least = room < NARROW ? 1 : READABLE;
    const height = Math.round(Math.min(Math.max(across, least) * this.high + 2, highest())); // the panel may be lower
    this.box.style.setProperty("--drawing", `${height}px`);
    this.setScale(Math.max(Math.min(across, (this.scroll.clientHeight - 2) / this.high), least));
  }

  /**
   * Scale the drawing so that all of it is visible, however small its text.
   * @this {import("./graph.js").Graph}
   */
  fitWhole() {
    this.zoomed = true;
    const { clientWidth, clientHeight } = this.scroll;
    this.setScale(Math.min((clientWidth - 2) / this.wide, (clientHeight - 2) / this.high, LARGEST));
  }

  /** @this {import("./graph.js").Graph} */
  zoom(factor) {
    this.zoomed = true;
    const { scroll } = this;
    const [x, y] = [scroll.scrollLeft + scroll.clientWidth / 2, scroll.scrollTop + scroll.clientHeight / 2];
    const before = this.scale;
    this.setScale(Math.max(0.2, Math.min(3, before * factor)));
    const ratio = this.scale / before;
    scroll.scrollLeft = x * ratio - scroll.clientWidth / 2;
    scroll.scrollTop = y * ratio - scroll.clientHeight / 2;
  }

  /** @this {import("./graph.js").Graph} */
  setScale(scale) {
    this.scale = scale;
    this.svg.style.setProperty("--smallest", `${SMALLEST / Math.max(scale, READABLE)}px`);
    this.svg.style.width = `${this.wide * scale}px`;
    this.svg.style.height = `${this.high * scale}px`;
  }

  /**
   * Scroll a drawing that is larger than its panel to the first of `nodes` in it, else to its last box.
   * @this {import("./graph.js").Graph}
   */
  bringIntoView(nodes) {
    const { scroll, scale } = this;
    if (scroll.scrollWidth <= scroll.clientWidth + 1 && scroll.scrollHeight <= scroll.clientHeight + 1) return;
    const box =
      nodes.map((node) => this.boxOf.get(node)).find(Boolean) ??
      [...this.boxes].findLast(([, { group }]) => !group.classList.contains("absent"))?.[0];
    if (!box) return;
    const centre = (start, size) => (start + size / 2 + MARGIN) * scale;
    scroll.scrollLeft = centre(box.x, box.width) - scroll.clientWidth / 2;
    scroll.scrollTop = centre(box.y, box.height) - scroll.clientHeight / 2;
  }
}
