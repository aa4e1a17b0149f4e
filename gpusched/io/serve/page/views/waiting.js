/** Gangs: what waits, with position, reason, sentence and estimate; and what runs, where that is asked. */

import { amount, count, many, moment, shown } from "../data/text.js";
import { chooser, finder, gangName, gpus, queueMark, speaksOf, stateMark, when } from "../parts/bits.js";
import { html, nothing } from "../vendor/lit-html.js";

const text = (read) => (a, b) => read(a).localeCompare(read(b), "en", { numeric: true });
const time = (read) => (a, b) => (moment(read(a)) || Infinity) - (moment(read(b)) || Infinity) || 0;
const named = text((each) => `${each.metadata.namespace}/${each.metadata.name}`);

/** Of each queue the first, then of each the second; those without a place come last. */
export function byPosition(a, b) {
  return (a.position || Infinity) - (b.position || Infinity) || text((each) => each.queue)(a, b) || named(a, b);
}

const ORDERS = {
  position: byPosition,
  name: named,
  queue: text((each) => each.queue),
  state: text((each) => each.state),
  gpus: (a, b) => amount(a.gpus) - amount(b.gpus),
  priority: (a, b) => a.priority - b.priority,
  reason: text((each) => each.reason),
  since: time((each) => each.since),
  estimate: time((each) => each.estimatedStartTime),
};

/**
 * Those that the filters of the address let through, in its order.
 * @param {import("../main.js").Page} page
 * @param {string} state that is meant where the address names none
 * @returns {any[]}
 */
export function chosenGangs({ store, query }, state) {
  const typed = (query.text ?? "").toLowerCase();
  const wanted = query.state || state;
  const sorted = query.sort || "position";
  const order = ORDERS[sorted.replace("-", "")] ?? byPosition;
  const found = [];
  for (const each of store.gangs.values()) {
    if (wanted !== "any" && each.state !== wanted) continue;
    if (query.namespace && each.metadata.namespace !== query.namespace) continue;
    if (query.queue && each.queue !== query.queue) continue;
    if (speaksOf(each, typed)) found.push(each);
  }
  return found.toSorted((a, b) => (sorted.startsWith("-") ? order(b, a) : order(a, b)) || named(a, b));
}

/** @param {import("../main.js").Page} page */
export function showWaiting(page) {
  const { query, store } = page;
  const gangs = [...store.gangs.values()];
  const values = (read) => [...new Set(gangs.map(read))].filter(Boolean).toSorted();
  const states = ["Waiting", "Starting", "Running", "Ending", "any"];
  page.rows = page.remember(`${store.versions.gangs} ${JSON.stringify(query)}`, () => chosenGangs(page, "Waiting"));
  return html`<h1 tabindex="-1">${query.state && query.state !== "Waiting" ? "Gangs" : "Waits"}</h1>
    <div class="filters" role="search" aria-label="Gangs">
      <label class="field"><span>State</span>
        <select @change=${(event) => page.ask({ state: event.target.value })}>
          ${states.map((each) => html`<option value=${each} ?selected=${each === (query.state || "Waiting")}>${each}</option>`)}
        </select></label>
      ${chooser("Namespace", query.namespace ?? "", values((each) => each.metadata.namespace), (namespace) => page.ask({ namespace }))}
      ${chooser("Queue", query.queue ?? "", values((each) => each.queue), (queue) => page.ask({ queue }))}
      ${finder(query.text ?? "", (typed) => page.ask({ text: typed }))}
      <p class="count" aria-live="polite">${many(page.rows.length, "gang")} of ${count(gangs.length)}</p>
    </div>
    <long-table id="gangs"></long-table>`;
}

/** @param {import("../main.js").Page} page */
export function fillWaiting(page) {
  const { query, store, colours } = page;
  const now = store.now();
  page.find("#gangs")?.show({
    label: "gangs",
    rows: page.rows,
    sorted: query.sort || "position",
    sort: (sort) => page.ask({ sort }),
    tall: 64,
    card: 176,
    grid: "5.6rem minmax(9rem,1.3fr) minmax(6rem,.8fr) 4.5rem 7rem minmax(14rem,3fr) 7rem 8.8rem",
    empty: store.complete ? (Object.keys(query).length ? "No gang is like that." : "Nothing waits.") : "Gangs are being read.",
    columns: [
      { title: "Position", sort: "position", kind: "n", cell: (gang) => gang.position || html`<span class="soft">${gang.state === "Waiting" ? "none" : nothing}</span>` },
      { title: "Gang", sort: "name", cell: gangName },
      { title: "Queue", sort: "queue", cell: (gang) => queueMark(gang.queue, colours) },
      { title: "GPUs", sort: "gpus", kind: "n", cell: gpus },
      { title: "State", sort: "state", cell: (gang) => stateMark(gang.state) },
      { title: "Why", sort: "reason", kind: "why", cell: (gang) => why(gang) },
      { title: "Estimate", sort: "estimate", kind: "when", cell: (gang) => (gang.state === "Waiting" ? when(gang.estimatedStartTime, now) : nothing) },
      { title: "Since", sort: "since", kind: "when", cell: (gang) => when(gang.since, now) },
    ],
  });
}

function why(gang) {
  const told = gang.message || (gang.state === "Waiting" ? "nothing was said about it yet" : placed(gang));
  return html`${gang.reason ? html`<b>${shown(gang.reason)}</b> ` : nothing}<span title=${shown(told)}>${shown(told)}</span>`;
}

/** @param {any} gang @returns {string} how many of its pods have a node */
export function placed(gang) {
  return `${gang.placed} of ${many(gang.placed + gang.waiting, "pod")} placed, ${gang.minMember} needed`;
}
