// A live notebook: what anywidget calls. Python holds the trace, the step and the answer.

import { listenTo, offer, tell, withdraw } from "./live.js";
import { listen, mountAll } from "./mount.js";
import { Player } from "./player.js";
import { unpacked } from "./trace.js";

function render({ model, el }) {
  const host = document.createElement("div");
  el.classList.add("gradtrace");
  el.dataset.function = model.get("trace").function;
  el.append(host);
  const data = {
    controls: [],
    initial: model.get("setting"),
    traces: [unpacked(model.get("trace").records)],
    step: model.get("question") ? null : model.get("step"),
    question: model.get("question"),
  };
  const player = new Player(host, data, {
    onStep: (step) => tell(model, "step", step),
    onAnswer: (answer) => tell(model, "answer", answer),
  });
  tell(model, "step", player.step);
  el.gradtrace = player;
  listen();
  return listenTo(model, {
    "change:trace": () => player.replace(unpacked(model.get("trace").records), model.get("setting")),
    "change:step": () => player.step !== model.get("step") && player.show(model.get("step")),
  });
}

/** Join a model to the players of the page, even without a view, once a kernel answers for it. */
function initialize({ model }) {
  if (!model.get("key")) return undefined;
  model.on("msg:custom", (content) => content === "here" && offer(model));
  model.on("comm_live_update", () => withdraw(model)); // its kernel restarts
  model.send("there?");
  mountAll(); // of a page whose player with the module was never shown
  return () => withdraw(model);
}

export default { initialize, render };
