// One setting as it is drawn: its trace, its graph and its bytes; and what differs between two.

import { Graph } from "./graph.js";
import { Memory } from "./memory.js";
import { Timeline } from "./timeline.js";
import { unpacked } from "./trace.js";

/** What is drawn of one setting. */
export class Scene {
  /** @type {number} of the timeline, where this is the other setting of two */
  step;

  constructor(player) {
    this.setting = player.setting;
    this.graph = new Graph(
      (kind, id) => player.pickInGraph(kind, id),
      (kind, id) => this === player.scene && player.light(kind, id),
    );
    this.memory = new Memory((step) =>
      player.go(this === player.scene ? step : this.timeline.matching(player.timeline, step)),
    );
    this.graph.onOpen = (title) => (player.status.textContent = `Inside ${title || "the whole graph"}.`);
  }

  setTrace(stored) {
    const trace = unpacked(stored);
    this.trace = trace;
    this.timeline = new Timeline(trace);
    this.begins = trace.steps.findIndex(({ changed, inside }) => changed.length || inside.length); // the graph
    if (this.begins < 0) this.begins = Infinity;
    this.graph.step = undefined;
    this.graph.setTrace(trace, this.timeline);
    this.memory.step = undefined;
    this.memory.setTrace(trace);
  }
}

/** The nodes of either setting that are missing in the other, or in another state there. */
export function differences(scene, step, peer) {
  const states = ({ timeline, trace }, time) =>
    new Map(
      [...timeline.at(time).nodes].map(([node, row]) => [
        timeline.keys[node],
        [node, trace.steps[time].raised?.node === node ? "stopped" : row[1]],
      ]),
    );
  const [mine, theirs] = [states(scene, step), states(peer, peer.step)];
  const differing = (one, other) =>
    new Set([...one].filter(([key, [, state]]) => other.get(key)?.[1] !== state).map(([, [node]]) => node));
  return [differing(mine, theirs), differing(theirs, mine)];
}
