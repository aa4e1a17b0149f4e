/** Queues: what each holds, is due, borrows and requests; as a table now, as curves over the last day. */

import { joinSamples, QueuePast } from "../data/past.js";
import { amount, clock, count, shown } from "../data/text.js";
import { chooser, queueMark, timeChoice } from "../parts/bits.js";
import { queuesDrawn } from "../parts/queue_curves.js";
import { due, refused, shareBar } from "./cluster.js";
import { html, nothing } from "../vendor/lit-html.js";

const HOUR = 3_600_000;
const DAY = 23.9 * HOUR;
const WINDOWS = { "1 h": HOUR, "6 h": 6 * HOUR, "1 d": 24 * HOUR };
const past = new QueuePast();

/** Queues in the order of their tree, each with how deep it is there. */
function inTree(queues) {
  const children = new Map();
  for (const each of queues.values()) {
    const parent = queues.has(each.parent) ? each.parent : "";
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(each);
  }
  const found = [];
  const visit = (parent, depth) => {
    const below = children.get(parent) ?? [];
    children.delete(parent);
    for (const each of below.toSorted((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))) {
      found.push({ queue: each, depth });
      visit(each.metadata.name, depth + 1);
    }
  };
  visit("", 0);
  return found;
}

/** @param {import("../main.js").Page} page */
export function showQueues(page) {
  const { store, query } = page;
  const rows = inTree(store.queues);
  const most = Math.max(1, ...rows.map(({ queue }) => Math.max(amount(queue.gpus.allocated), due(queue))));
  page.drawn = query.queue ? [query.queue] : queuesDrawn(store.queues);
  if (store.complete) past.read(page.drawn, store.samples, () => page.draw());
  page.samples = joinSamples(store.samples, past.known, page.drawn);
  return html`<h1 tabindex="-1">Queues</h1>
    ${refused(store.about?.queues, "queues") ??
    html`<section class="card" aria-labelledby="curves-title">
        <div class="bar"><h2 id="curves-title">GPUs over time</h2>
          ${timeChoice(query.window ?? "", WINDOWS, (window) => page.ask({ window }))}
          ${chooser("Queue", query.queue ?? "", [...store.queues.keys()].toSorted(), (queue) => page.ask({ queue }))}</div>
        <queue-curves></queue-curves>
        <p class="soft">${query.queue ? "Held, due, borrowed and requested by the chosen queue." : "Held by each queue; choose one to see what it is due, borrows and requests."}
          ${since(page)}</p>
      </section>
      <section class="card" aria-labelledby="table-title">
        <h2 id="table-title">Queues now</h2>
        <div class="scroll" tabindex="0" role="region" aria-label="Table of queues">
        <table><thead><tr><th scope="col">Queue</th><th scope="col" class="n">Held</th><th scope="col" class="n">Due</th><th scope="col" class="n">Borrowed</th><th scope="col" class="n">Requested</th><th scope="col" class="n">Limit</th><th scope="col">Share</th><th scope="col">Budget</th><th scope="col" class="n">Gangs that wait</th><th scope="col" class="n">Gangs that run</th><th scope="col">State</th></tr></thead>
        <tbody>${rows.map(({ queue, depth }) => queueRow(page, queue, { depth, most }))}</tbody></table></div>
        ${rows.length ? nothing : html`<p class="empty">${store.complete ? "There are no queues." : "Queues are being read."}</p>`}
      </section>
      ${startsCard(rows.map(({ queue }) => queue))}`}`;
}

/** How starts came beside what gangs were told when half of their wait was over, by what that rested on. */
function startsCard(queues) {
  const rows = queues.flatMap((queue) => (queue.startEstimates ?? []).map((each) => ({ queue: queue.metadata.name, ...each })));
  if (!rows.length) return nothing;
  const part = (some, all) => (all ? `${Math.round((100 * some) / all)} %` : html`<span class="soft">none</span>`);
  return html`<section class="card" aria-labelledby="starts-title">
      <h2 id="starts-title">Starts beside what was told</h2>
      <div class="scroll" tabindex="0" role="region" aria-label="Table of starts beside what was told">
      <table><thead><tr><th scope="col">Queue</th><th scope="col">Estimates rested on</th><th scope="col" class="n">Starts</th><th scope="col" class="n">As told, within a tenth</th><th scope="col" class="n">Median wait, of what was told</th><th scope="col" class="n">Within their range</th></tr></thead>
      <tbody>${rows.map((each) => html`<tr><th scope="row">${shown(each.queue)}</th><td>${shown(each.knownBy)}</td><td class="n">${count(each.starts)}</td>
        <td class="n">${part(each.asTold, each.starts)}</td><td class="n">${each.medianPercent} %</td><td class="n">${part(each.held, each.ranged)}</td></tr>`)}</tbody></table></div>
      <p class="soft">Of waits of a minute or more, what was told when half of the wait was over. Four of five should come within their range.</p>
    </section>`;
}

/** From when on curves are known, and why not longer. */
function since({ store, samples }) {
  const now = store.now();
  const first = past.known.since;
  if (past.missing) return html`What was before ${clock(samples.at[0], now, false)} is not told. ${past.missing}`;
  if (!Number.isFinite(first)) return nothing;
  const why = now - first > DAY ? "one day" : "when this daemon began to note them";
  return html`A point each minute since ${clock(first, now, false)}, ${why}; each change since this page was opened.`;
}

function queueRow({ colours }, queue, { depth, most }) {
  const { gpus, metadata } = queue;
  const told = (text) => (text ? count(amount(text)) : html`<span class="soft">none</span>`);
  const waiting = queue.pending + queue.inqueue;
  return html`<tr>
    <th scope="row" .style=${`padding-left:${0.5 + depth * 1.2}rem`}>${queueMark(metadata.name, colours)}</th>
    <td class="n">${told(gpus.allocated)}</td><td class="n">${due(queue) ? count(due(queue)) : told("")}</td>
    <td class="n">${amount(gpus.borrowed) ? html`<span class="warn">${told(gpus.borrowed)}</span>` : "0"}</td>
    <td class="n">${told(gpus.requested)}</td><td class="n">${told(gpus.limit)}</td>
    <td class="wide">${shareBar(queue, most, colours)}</td>
    <td>${budgetBar(queue.budget)}</td>
    <td class="n">${waiting ? html`<a href=${`#/waiting?queue=${encodeURIComponent(metadata.name)}`}>${count(waiting)}</a>` : "0"}</td>
    <td class="n">${queue.running ? html`<a href=${`#/waiting?state=Running&queue=${encodeURIComponent(metadata.name)}`}>${count(queue.running)}</a>` : "0"}</td>
    <td>${queue.ready ? shown(queue.state) || "Open" : html`<span class="bad">not ready</span>`}${queue.message ? html`<small>${shown(queue.message)}</small>` : nothing}</td>
  </tr>`;
}

/** How much of its budget a queue has used, and until when. */
function budgetBar(budget) {
  if (!budget) return html`<span class="soft">none</span>`;
  const exhausted = budget.reason === "BudgetExhausted";
  const told = `${budget.used} of ${budget.available} GPU-hours`;
  return html`<meter min="0" max="100" high="80" optimum="0" .value=${Math.min(100, budget.percent)} aria-label=${told}></meter>
    <small class=${exhausted ? "bad" : budget.reason === "BudgetWarning" ? "warn" : ""} title=${shown(budget.message)}>${shown(told)}, ${exhausted ? "opens" : "until"} ${shown(budget.nextPeriod)}</small>`;
}

/** @param {import("../main.js").Page} page */
export function fillQueues(page) {
  const { store, colours, query, samples } = page;
  const options = { samples, now: store.now(), span: WINDOWS[query.window] ?? 0, colours, queue: query.queue ?? "" };
  page.find("queue-curves")?.show(options);
}
