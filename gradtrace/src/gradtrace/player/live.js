// While a kernel lives, the model that Python holds and the page's players of the same key move together.

import { unpacked } from "./trace.js";

/** Return the newest model of each key, shared by all copies of this module on the page. */
const models = () => (document.gradtraceModels ??= new Map());

const joined = (key) =>
  [...document.querySelectorAll(".gradtrace[data-key]")].filter(
    (place) => place.dataset.key === key && place.gradtrace,
  );

/**
 * Add listeners to a model, and return a function that removes them.
 * @returns {() => void}
 */
export function listenTo(model, listeners) {
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  return () => Object.entries(listeners).forEach(([name, listener]) => model.off(name, listener));
}

export function tell(model, name, value) {
  if (String(model.get(name)) === String(value)) return;
  model.set(name, value);
  model.save_changes();
}

/** Join the players of a model's key to it, now and in `connect`, unless a newer model has the key. */
export function offer(model) {
  const key = model.get("key");
  if (models().get(key)?.get("born") > model.get("born")) return;
  models().set(key, model);
  joined(key).forEach(connect);
}

/** Detach the players of a model whose kernel is gone. */
export function withdraw(model) {
  const key = model.get("key");
  if (models().get(key) !== model) return;
  models().delete(key);
  for (const { gradtrace: player } of joined(key)) player.part?.();
}

/**
 * Join the player of a place to the model of its key, if there is one.
 * @param {Element} place
 */
export function connect({ gradtrace: player, dataset }) {
  const model = models().get(dataset.key);
  if (!model || player.model === model) return;
  player.part?.();
  join(player, model);
}

/**
 * Join a player to a model. The model takes the setting, answer and step that the reader chose before; otherwise
 * the player takes the model's. A model at step 0 that no player has joined takes the player's opening step.
 */
function join(player, model) {
  const { data } = player;
  const isFresh = !model.get("step") && joined(model.get("key")).every(({ gradtrace }) => gradtrace.model !== model);
  const moved = player.step !== player.opening();
  const chose = String(player.setting) !== String(player.locked ? data.question.setting : data.initial);
  const answered = () => model.get("answer").length && player.locked && player.restore(model.get("answer"));
  const another = () => {
    const setting = model.get("setting");
    if (!player.stores(setting)) player.replace(unpacked(model.get("trace").records), setting);
    else if (String(setting) !== String(player.setting)) player.choose(setting);
  };
  const follow = () => player.step !== model.get("step") && player.show(model.get("step"));
  let deafen = () => {};
  const listeners = {
    "msg:custom": ({ refused }) => refused && player.edits?.note.replaceChildren(refused),
    "change:step": follow,
    "change:setting": another,
    "change:trace": another,
    "change:answer": answered,
  };
  player.model = model;
  player.choices = model.get("controls");
  player.hooks = {
    onAnswer: (answer) => tell(model, "answer", answer),
    onSetting: (setting) => tell(model, "setting", setting),
    onSource: (source) => model.send({ source }),
  };
  player.part = () => {
    deafen();
    Object.assign(player, { model: null, part: null, choices: data.controls, hooks: {} });
    if (player.stores(player.setting)) player.drawControls();
    else player.choose([...data.initial]);
  };

  if (model.get("answer").length) answered();
  else if (player.question && !player.locked) {
    if (player.recalled)
      player.ask(); // to another program of this name, perhaps
    else tell(model, "answer", player.question.picked);
  }
  if (chose) tell(model, "setting", player.setting);
  else if (!player.locked) another(); // what is asked is asked of one setting
  player.hooks.onStep = (step) => tell(model, "step", step); // not before: another setting would move the model
  if (moved || isFresh) player.hooks.onStep(player.step);
  else follow();
  player.drawControls();
  deafen = listenTo(model, listeners);
}
