// A page without a kernel: each player is built when it comes near the view; links in the prose move
// it; what was answered is summed up. Several copies of this module may meet on one page.

import { summarise } from "./answers.js";
import { connect } from "./live.js";
import { Player } from "./player.js";

const players = () => document.querySelectorAll(".gradtrace[data-function]");

/** Build the player of a place; its data is read only now. */
function mount(place) {
  if (!place.gradtrace) {
    const stored = place.querySelector('script[type="application/json"]');
    const host = place.querySelector("div");
    const focused = document.activeElement === host;
    for (const name of ["tabindex", "role", "aria-label"]) host.removeAttribute(name);
    place.gradtrace = new Player(host, unshared(JSON.parse(stored.textContent)));
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

// The fields of a step, of one inside of a line, and of what a node did, in the order of `page.py`.
const STEP = "line ran held gradients variables changed values peak gone device raised inside unrecorded".split(" ");
const INSIDE = "run changed gone held gradients variables node".split(" ");
const NODE_RUN = "node received passed written released returned call depth hooks recomputed".split(" ");

/** The values of a row by the names of its fields; what is not there stays away. */
function named(row, fields, absent) {
  const pairs = fields.map((name, k) => [name, row[k]]).filter(([, value]) => value != null);
  return { ...absent, ...Object.fromEntries(pairs) };
}

function stepOf(row) {
  const step = named(row, STEP, { line: null, ran: null });
  if (step.inside) {
    step.inside = step.inside.map((inner) => {
      const node = named(inner, INSIDE, {});
      return { ...node, run: named(node.run, NODE_RUN, { node: null, passed: null }) };
    });
  }
  return step;
}

/** What several traces have in common is stored once, and each says where. */
function unshared({ shared, ...data }) {
  for (const trace of data.traces) {
    for (const [key, known] of Object.entries(shared)) trace[key] = known[trace[key]];
    trace.steps = trace.steps.map(stepOf);
  }
  return data;
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
    for (const [name, value] of [
      ["tabindex", "0"],
      ["role", "group"],
      ["aria-label", `Line player: ${place.dataset.function}`],
    ])
      host.setAttribute(name, value);
    host.addEventListener("focus", () => mount(place), { once: true });
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
  paper.addEventListener("change", () => onPaper(paper.matches));
  addEventListener("beforeprint", () => onPaper(true));
  addEventListener("afterprint", () => onPaper(false));
  const themes = () => players().forEach((place) => place.gradtrace?.theme());
  const attributes = [
    "class",
    "style",
    "data-theme",
    "data-mode",
    "data-jp-theme-light",
    "data-vscode-theme-kind",
    "theme",
  ];
  for (const watched of [document.documentElement, document.body]) {
    new MutationObserver(themes).observe(watched, { attributes: true, attributeFilter: attributes });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themes);
  if (location.hash.startsWith("#play:")) play(decodeURIComponent(location.hash.slice(6)));
}

function onPaper(begins) {
  for (const place of players()) (place.dataset.mounted === undefined ? place.gradtrace : mount(place))?.paper(begins);
}

/** Follow `FUNCTION:step=5:node=LABEL…`, unfolded if need be; false where there is no such player. */
function play(text) {
  const [name, ...wishes] = text.split(":");
  const place = [...players()].find((one) => one.dataset.function === name);
  if (!place) return false;
  const fold = place.closest("details");
  if (fold) fold.open = true;
  const player = mount(place);
  player.host.scrollIntoView({
    block: "nearest",
    behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
  });
  player.follow(
    Object.fromEntries(wishes.map((wish) => [wish.slice(0, wish.indexOf("=")), wish.slice(wish.indexOf("=") + 1)])),
  );
  return true;
}
