// Controls of a page without a kernel, as native HTML. A control with one option only is not shown.

import { element } from "./dom.js";

/** Return the index of the trace of a setting; the last control changes fastest. */
export const traceOf = (controls, setting) =>
  controls.reduce((index, { options }, k) => index * options.length + setting[k], 0);

/** Return labelled inputs that show `setting`, and that call `onChange` with the setting that the reader chose. */
export function drawControls(controls, setting, onChange) {
  const chosen = [...setting];
  const changed = (i, option) => {
    chosen[i] = option;
    onChange([...chosen]);
  };
  return controls.flatMap(({ name, kind, options }, i) => {
    if (options.length < 2 || kind === "edits") return [];
    const label = element("code", {}, name);
    if (kind === "checkbox") {
      const box = element("input", {
        type: "checkbox",
        role: "switch",
        onchange: () => changed(i, Number(box.checked)),
      });
      box.checked = chosen[i] === 1;
      return [element("label", {}, label, box)];
    }
    const select = element(
      "select",
      { onchange: () => changed(i, select.selectedIndex) },
      ...options.map((text) => element("option", {}, text)),
    );
    select.selectedIndex = chosen[i] ?? -1; // Python may set a value that is not among them
    return [element("label", {}, label, select)];
  });
}
