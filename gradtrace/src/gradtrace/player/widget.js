// A live notebook: what anywidget calls. Python holds the trace, the step and the answer.

import { listen } from "./mount.js";
import { Player } from "./player.js";

function render({ model, el }) {
  const host = document.createElement("div");
  el.classList.add("gradtrace");
  el.dataset.function = model.get("trace").function;
  el.append(host);
  const tell = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const data = { controls: [], initial: [], traces: [model.get("trace")], step: model.get("step"), question: model.get("question") ?? null };
  const player = new Player(host, data, { onStep: (step) => tell("step", step), onAnswer: (answer) => tell("answer", answer) });
  el.gradtrace = player;
  listen();
  const onTrace = () => player.replace(model.get("trace"), model.get("step"));
  const onStep = () => player.step !== model.get("step") && player.show(model.get("step"));
  model.on("change:trace", onTrace);
  model.on("change:step", onStep);
  return () => {
    model.off("change:trace", onTrace);
    model.off("change:step", onStep);
  };
}

export default { render };
