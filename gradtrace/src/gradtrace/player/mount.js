// A page without a kernel builds each player near the view. Several copies of this module may meet on one page.

import { summarise } from "./answers.js";
import { connect } from "./live.js";
import { Player } from "./player.js";
import { unpacked } from "./trace.js";

const players = () => document.querySelectorAll(".gradtrace[data-function]");

/** Return the player of a place, which is built from the stored data at the first call. */
function mount(place) {
  if (!place.gradtrace) {
    const stored = place.querySelector('script[type="application/json"]');
    const host = place.querySelector("div");
    const focused = document.activeElement === host;
    for (const name of ["tabindex", "role", "aria-label"]) host.removeAttribute(name);
    const data = JSON.parse(stored.textContent);
    place.gradtrace = new Player(host, { ...data, traces: unpacked(data.records) });
    // The place was kept at a guess; out of sight it can be as high as the player is.
    if (place.getBoundingClientRect().top > innerHeight) place.style.minHeight = 0;
    if (place.dataset.key) connect(place);
    if (focused)
      [...place.gradtrace.box.querySelectorAll("button, input, select, [tabindex='0']")]
        .find((part) => part.getClientRects().length)
        .focus();
  }
  return place.gradtrace;
}

export function mountAll() {
  document.gradtracePlayers = mountAll; // for those that come later and do not carry this module
  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, boundingClientRect, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        const seen = boundingClientRect.top < innerHeight && boundingClientRect.bottom > 0;
        if (seen || !window.requestIdleCallback) mount(target);
        else requestIdleCallback(() => mount(target), { timeout: 300 });
      }
    },
    { rootMargin: "400px 0px" },
  );
  for (const place of document.querySelectorAll(".gradtrace:not([data-mounted])")) {
    if (!place.querySelector('script[type="application/json"]')) continue;
    place.dataset.mounted = "";
    near.observe(place);
    // Until it is built, the Tab key would pass it by.
    const host = place.querySelector("div");
    Object.assign(host, { tabIndex: 0, role: "group", ariaLabel: `Line player: ${place.dataset.function}` });
    host.addEventListener("focus", () => mount(place), { once: true });
  }
  listen();
  summarise();
}

/** Handle links, printing and themes for the page, once even if it has several copies of this module. */
export function listen() {
  if (document.gradtrace) return;
  document.gradtrace = true;
  document.addEventListener("click", (event) => {
    const link = event.composedPath().find((node) => node.tagName === "A");
    const hash = link?.getAttribute("href")?.match(/#play:(.*)$/)?.[1];
    if (hash !== undefined && play(decodeURIComponent(hash))) event.preventDefault();
  });
  const paper = matchMedia("print");
  paper.addEventListener("change", () => onPaper(paper.matches));
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  const themes = () => players().forEach((place) => place.gradtrace?.theme());
  for (const watched of [document.documentElement, document.body]) {
    new MutationObserver(themes).observe(watched, { attributes: true });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themes);
  if (location.hash.startsWith("#play:")) play(decodeURIComponent(location.hash.slice(6)));
}

function onPaper(begins) {
  for (const place of players()) (place.dataset.mounted === undefined ? place.gradtrace : mount(place))?.paper(begins);
}

/** Follow `FUNCTION:step=5:SETTING=…`, and open its fold; return false if there is no such player. */
function play(text) {
  const [name, ...wishes] = text.split(":");
  const place = [...players()].find((one) => one.dataset.function === name);
  if (!place) return false;
  const fold = place.closest("details");
  if (fold) fold.open = true;
  const player = mount(place);
  player.host.scrollIntoView({ block: "nearest" });
  player.follow(
    Object.fromEntries(wishes.map((wish) => [wish.slice(0, wish.indexOf("=")), wish.slice(wish.indexOf("=") + 1)])),
  );
  return true;
}
