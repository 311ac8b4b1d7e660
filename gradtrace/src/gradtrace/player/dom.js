// Elements and texts. Whatever comes from a program is set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Give an element its listeners (`onclick`) and attributes, but for those that are false or missing, and children. */
function build(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(Boolean));
  return made;
}

export const element = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);

export const shape = (tag, attributes = {}, ...children) =>
  build(document.createElementNS(SVG, tag), attributes, children);

export const button = (text, label, onclick, attributes = {}) =>
  element("button", { "aria-label": label, title: label, onclick, ...attributes }, text);

/** Return the listeners of an element that let a player highlight what belongs to it, while it is pointed at. */
export const pointedAt = (player, kind, id) => ({
  onpointerenter: () => player.light(kind, id),
  onpointerleave: () => player.light(kind),
  onfocus: () => player.light(kind, id),
  onblur: () => player.light(kind),
});

/** Let arrow keys move the focus among `parts`, by `roving(part)`, and Enter or the space bar press the focused one. */
export function pressed(event, parts, roving) {
  const at = parts.indexOf(event.composedPath()[0]);
  const to = { ArrowUp: at - 1, ArrowDown: at + 1, Enter: at, " ": at }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  if (to === at) parts[at].dispatchEvent(new MouseEvent("click"));
  else if (parts[to]) {
    roving(parts[to]);
    parts[to].focus();
    parts[to].scrollIntoView({ block: "nearest", inline: "nearest" });
  }
}

/** Return a flag with a sign, which is not read aloud, and a text. */
export const signed = (kind, sign, text) =>
  element("span", { class: `flag ${kind}` }, element("span", { "aria-hidden": "true" }, `${sign} `), text);

/** Format a number of bytes: "12 B", "3.4 kB", "12.3 MB". */
export function bytes(count) {
  let unit = 0;
  let size = count;
  while (size >= 999.5 && unit < 4) {
    size /= 1000;
    unit += 1;
  }
  const text = unit && size < 99.95 ? size.toFixed(1).replace(".0", "") : size.toFixed(0);
  return `${text} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

export const dimensions = (sizes) => (sizes.length ? `[${sizes.join(", ")}]` : "scalar");

const grouped = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, ","); // Intl takes long to load

export const plural = (count, one, many = `${one}s`) => `${grouped(count)} ${count === 1 ? one : many}`;

/** Join names, "a, b and c"; of more than `most` + 1 only the first `most`: "a, b and 3 more". */
export function listed(names, most = 4) {
  const shown = names.length > most + 1 ? names.slice(0, most) : names;
  const rest = names.length - shown.length;
  const all = rest ? [...shown, `${rest} more`] : shown;
  return all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Return text with `code` and **bold** in it as nodes. */
export const marked = (text) =>
  text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (/^`.+`$/.test(part)) return element("code", {}, part.slice(1, -1));
    return /^\*\*.+\*\*$/.test(part) ? element("strong", {}, part.slice(2, -2)) : part;
  });
