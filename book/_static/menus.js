// Bootstrap makes the theme's menus and tooltips, and nothing else here.  Its script comes when one of
// them is pointed at or focused.

const SERVED = "[data-bs-toggle]";
const WANTED = ["pointerover", "focusin", "click"];
const { bootstrap } = document.currentScript.dataset;
let pressed = null; // a menu that was to open before the script had come
let coming = false;

function want({ target, type }) {
  const served = target.closest(SERVED);
  if (!served) return;
  if (type === "click") pressed = served;
  if (coming) return;
  coming = true;
  const script = document.createElement("script");
  script.src = bootstrap;
  script.addEventListener("load", () => {
    for (const kind of WANTED) removeEventListener(kind, want);
    if (pressed?.dataset.bsToggle === "dropdown") pressed.click();
  });
  document.head.append(script);
}

for (const kind of WANTED) addEventListener(kind, want);
