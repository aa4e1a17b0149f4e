/** What changed: decisions, the newest first, with their sentences. */

import { clock, many, moment, shown, wholeTime } from "../data/text.js";
import { chooser, finder, gangOf } from "../parts/bits.js";
import { html } from "../vendor/lit-html.js";

const EVENTS = ["claims", "grows", "loses", "starts", "waits"];

/** @param {import("../main.js").Page} page */
export function showChanges(page) {
  const { query, store } = page;
  const typed = (query.text ?? "").toLowerCase();
  page.rows = store.decisions
    .filter((each) => !query.event || each.event === query.event)
    .filter((each) => `${each.message} ${each.gang?.namespace}/${each.gang?.name}`.toLowerCase().includes(typed))
    .toReversed();
  return html`<h1 tabindex="-1">What changed</h1>
    <div class="filters">
      ${chooser("Event", query.event ?? "", EVENTS, (event) => page.ask({ event }))}
      ${finder(query.text ?? "", (text) => page.ask({ text }))}
      <p class="count">${many(page.rows.length, "decision")}</p>
    </div>
    <long-table id="decisions"></long-table>`;
}

/** @param {import("../main.js").Page} page */
export function fillChanges(page) {
  const now = page.store.now();
  page.find("#decisions")?.show({
    label: "decisions",
    rows: page.rows ?? [],
    tall: 52,
    card: 130,
    grid: "8rem 6rem minmax(9rem,1fr) minmax(14rem,4fr)",
    empty: "No decision is like that.",
    columns: [
      { title: "Time", cell: (each) => html`<time datetime=${each.time} title=${wholeTime(moment(each.time))}>${clock(moment(each.time), now)}</time>` },
      { title: "Event", cell: (each) => html`<span class="state" data-state=${each.event}>${shown(each.event)}</span>` },
      { title: "Gang", cell: (each) => (each.gang ? gangOf(each.gang.namespace, each.gang.kind, each.gang.name) : "") },
      { title: "What was decided", kind: "why", cell: (each) => html`<span title=${shown(each.message)}>${shown(each.message)}</span>` },
    ],
  });
}
