/** `<queue-curves>`: GPUs of queues over time, drawn by uPlot. */

import { amount, clock, count, day, shown } from "../data/text.js";
import { textUnit } from "./bits.js";
import uPlot from "../vendor/uPlot.esm.js";

const QUEUES_MAX = 12;
const HEIGHT = 260;
const SPAN = 60;
/** A third of the window, so that a wall is used and a table stands below. */
const tall = () => Math.max(HEIGHT, window.innerHeight / 3);
const dayOf = (seconds) => day(seconds * 1000);

/** Draws what `show` was given last. */
export class QueueCurves extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "img");
    this.sizes = new ResizeObserver(() => this.plot?.setSize({ width: this.clientWidth, height: tall() }));
    this.sizes.observe(this);
  }

  disconnectedCallback() {
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
    this.made = "";
  }

  /**
   * @param {object} options
   * @param {ReturnType<typeof import("../data/past.js").joinSamples>} options.samples
   * @param {number} options.now
   * @param {number} options.span milliseconds that are shown, 0 for all that is known
   * @param {import("../data/colours.js").Colours} options.colours
   * @param {string} options.queue the one that is shown in full, empty for what each holds
   */
  show({ samples, now, span, colours, queue }) {
    const series = queue ? sortsOf(samples.queues.get(queue) ?? [], queue, colours) : heldByEach(samples, colours);
    this.span = span / 1000;
    this.setAttribute("aria-label", `Curves of ${series.map((each) => each.label).join(", ") || "nothing yet"}; the table below tells the same as numbers.`);
    // What was seen last holds until now.
    const data = [
      [...samples.at, Math.max(now, samples.at.at(-1) ?? 0)].map((at) => at / 1000),
      ...series.map(({ values }) => [...values, values.at(-1) ?? null]),
    ];
    const made = JSON.stringify([series.map((each) => [each.label, each.stroke]), colours.dark]);
    if (made === this.made) {
      this.plot.setData(data);
      return;
    }
    this.made = made;
    this.plot?.destroy();
    this.plot = new uPlot(this.#options(series), data, this);
  }

  #options(series) {
    const style = getComputedStyle(this);
    const ink = style.getPropertyValue("--soft").trim();
    const line = style.getPropertyValue("--line").trim();
    const unit = textUnit();
    const axis = { font: `${12 * unit}px ${style.fontFamily}`, stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return {
      width: Math.max(200, this.clientWidth),
      height: tall(),
      axes: [
        { ...axis, values: (_, times, __, ___, step) => tickWords(times, step), space: 72 * unit, size: 50 * unit },
        { ...axis, size: 64 * unit },
      ],
      scales: { x: { range: (_, from, to) => [this.span ? to - this.span : Math.min(from, to - SPAN), to] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
      series: [
        { label: "Time", value: (_, at) => (at ? `${dayOf(at)} ${clock(at * 1000, at * 1000)}` : "now") },
        ...series.map(({ label, stroke, dash }) => ({ label, stroke, dash, width: 2 * unit, value: (_, gpus) => (gpus === null ? "" : count(gpus ?? 0)), points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) })),
      ],
    };
  }
}

function heldByEach({ queues }, colours) {
  return [...queues].map(([name, values]) => ({ label: shown(name), stroke: colours.ofQueue(name), values: values.map((each) => each && each.held) }));
}

/**
 * Those that are drawn where none is chosen: they hold most now.
 * @param {Map<string, any>} queues
 * @returns {string[]} sorted
 */
export function queuesDrawn(queues) {
  const held = (queue) => amount(queue.gpus.allocated);
  return [...queues.values()]
    .toSorted((a, b) => held(b) - held(a) || (a.metadata.name < b.metadata.name ? -1 : 1))
    .slice(0, QUEUES_MAX)
    .map((each) => each.metadata.name)
    .toSorted();
}

/** Times of day, with seconds where ticks are that close, and the day where it is another one. */
function tickWords(times, step) {
  return times.map((time, at) => {
    const told = clock(time * 1000, time * 1000, step < 60);
    return at && dayOf(times[at - 1]) !== dayOf(time) ? `${told}\n${dayOf(time)}` : told;
  });
}

function sortsOf(values, queue, colours) {
  const stroke = colours.ofQueue(queue);
  const quiet = colours.ofNobody();
  return [["held", stroke], ["due", quiet, [12, 6]], ["borrowed", stroke, [6, 4]], ["requested", quiet, [3, 4]]].map(
    ([label, colour, dash]) => ({ label, stroke: colour, dash, values: values.map((each) => each && each[label]) }),
  );
}

customElements.define("queue-curves", QueueCurves);
