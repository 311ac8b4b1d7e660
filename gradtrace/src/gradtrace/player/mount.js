// A page without a kernel: each player is built when it comes near the view; links in the prose move
// it; what was answered is summed up. Several copies of this module may meet on one page.

import { summarise } from "./answers.js";
import { Player } from "./player.js";

const players = () => document.querySelectorAll(".gradtrace[data-function]");

/** Build the player of a place; its data is read only now. */
function mount(place) {
  if (!place.gradtrace) {
    const stored = place.querySelector('script[type="application/json"]');
    place.gradtrace = new Player(place.querySelector("div"), JSON.parse(stored.textContent));
  }
  return place.gradtrace;
}

export function mountAll() {
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      mount(target);
    }
  }, { rootMargin: "400px 0px" });
  for (const place of document.querySelectorAll(".gradtrace:not([data-mounted])")) {
    if (!place.querySelector('script[type="application/json"]')) continue;
    place.dataset.mounted = "";
    near.observe(place);
  }
  listen();
  summarise();
}

/** What the page as a whole does, once however many copies of the module it has. */
export function listen() {
  if (document.gradtrace) return;
  document.gradtrace = true;
  document.addEventListener("click", (event) => {
    const link = event.composedPath().find((node) => node.tagName === "A");
    const hash = link?.getAttribute("href")?.match(/#play:(.*)$/)?.[1];
    if (hash !== undefined && play(decodeURIComponent(hash))) event.preventDefault();
  });
  const paper = matchMedia("print");
  paper.addEventListener("change", () => paper.matches && mountedOnPaper());
  addEventListener("beforeprint", mountedOnPaper);
  const themes = () => players().forEach((place) => place.gradtrace?.theme());
  const attributes = ["class", "style", "data-theme", "data-mode", "data-jp-theme-light", "data-vscode-theme-kind", "theme"];
  for (const watched of [document.documentElement, document.body]) {
    new MutationObserver(themes).observe(watched, { attributes: true, attributeFilter: attributes });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themes);
  if (location.hash.startsWith("#play:")) play(decodeURIComponent(location.hash.slice(6)));
}

function mountedOnPaper() {
  for (const place of document.querySelectorAll(".gradtrace[data-mounted]")) mount(place);
}

/** Follow `FUNCTION:step=5:node=LABEL…`, unfolded if need be; false where there is no such player. */
function play(text) {
  const [name, ...wishes] = text.split(":");
  const place = [...players()].find((one) => one.dataset.function === name);
  if (!place) return false;
  const fold = place.closest("details");
  if (fold) fold.open = true;
  const player = mount(place);
  player.host.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  player.follow(Object.fromEntries(wishes.map((wish) => [wish.slice(0, wish.indexOf("=")), wish.slice(wish.indexOf("=") + 1)])));
  return true;
}
