/** `<queue-curves>`: GPUs of queues over time, drawn by uPlot. */

import { clock, shown } from "../data/text.js";
import uPlot from "../vendor/uPlot.esm.js";

const QUEUES_MAX = 12;
const HEIGHT = 260;
const SPAN = 60;

/** Draws what `show` was given last. */
export class QueueCurves extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "img");
    this.sizes = new ResizeObserver(() => this.plot?.setSize({ width: this.clientWidth, height: HEIGHT }));
    this.sizes.observe(this);
  }

  disconnectedCallback() {
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
    this.made = "";
  }

  /** @param {{store: import("../data/store.js").Store, colours: import("../data/colours.js").Colours, queue: string}} options */
  show({ store, colours, queue }) {
    const series = queue ? sortsOf(store.samples.queues.get(queue) ?? [], queue, colours) : heldByEach(store, colours);
    this.setAttribute("aria-label", `Curves of ${series.map((each) => each.label).join(", ") || "nothing yet"}; the table below tells the same as numbers.`);
    const made = JSON.stringify([series.map((each) => [each.label, each.stroke]), colours.dark]);
    // What was seen last holds until now.
    const data = [
      [...store.samples.at, store.now()].map((at) => at / 1000),
      ...series.map(({ values }) => [...values, values.at(-1) ?? null]),
    ];
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
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return {
      width: Math.max(200, this.clientWidth),
      height: HEIGHT,
      axes: [
        { ...axis, values: (_, times) => times.map((time) => clock(time * 1000, Date.now())) , space: 90 },
        { ...axis, size: 64 },
      ],
      scales: { x: { range: (_, from, to) => [Math.min(from, to - SPAN), to] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] } },
      series: [
        { value: (_, at) => (at ? new Date(at * 1000).toLocaleTimeString("en-GB") : "") },
        ...series.map(({ label, stroke, dash }) => ({ label, stroke, dash, width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) })),
      ],
    };
  }
}

function heldByEach({ samples }, colours) {
  const last = (values) => values.at(-1)?.held ?? 0;
  return [...samples.queues]
    .toSorted((a, b) => last(b[1]) - last(a[1]) || (a[0] < b[0] ? -1 : 1))
    .slice(0, QUEUES_MAX)
    .toSorted((a, b) => (a[0] < b[0] ? -1 : 1))
    .map(([name, values]) => ({ label: shown(name), stroke: colours.ofQueue(name), values: values.map((each) => each && each.held) }));
}

function sortsOf(values, queue, colours) {
  const stroke = colours.ofQueue(queue);
  const quiet = colours.ofNobody();
  return [["held", stroke], ["due", quiet, [8, 4]], ["borrowed", stroke, [3, 3]], ["requested", quiet, [2, 6]]].map(
    ([label, colour, dash]) => ({ label, stroke: colour, dash, values: values.map((each) => each && each[label]) }),
  );
}

customElements.define("queue-curves", QueueCurves);
