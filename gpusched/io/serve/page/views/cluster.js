/** The cluster: its figures, every GPU by topology, and beside it what people ask most. */

import { describeSlot } from "../parts/cluster_map.js";
import { amount, clock, count, duration, many, moment, placeOf, shown } from "../data/text.js";
import { chooser, finder, gangName, gangOf, name, queueMark } from "../parts/bits.js";
import { byPosition } from "./waiting.js";
import { html, nothing } from "../vendor/lit-html.js";

const NEXT = 6;
const LAST = 6;
const EVICTION_WINDOW_S = 3_600; // where no daemon says it

/** @param {import("../main.js").Page} page */
export function showCluster(page) {
  const { store, query } = page;
  const table = query.as === "table";
  const by = query.by || "queue";
  return html`<h1 tabindex="-1">Cluster</h1>
    ${figures(store)}
    <div class="beside">
      <section aria-labelledby="map-title" class="card map">
        <div class="bar">
          <h2 id="map-title">GPUs and who holds them</h2>
          <span class="choice" role="group" aria-label="Show as">
            ${choice(page, "as", "", "Map", !table)}${choice(page, "as", "table", "Table", table)}
          </span>
          ${table
            ? nothing
            : html`<span class="choice" role="group" aria-label="Colours">
                ${choice(page, "by", "", "Queues", by === "queue")}${choice(page, "by", "gang", "Gangs", by === "gang")}
              </span>`}
        </div>
        ${refused(store.about?.nodes, "nodes") ?? (table ? nodeTable(page) : html`${legend(page, by)}${store.complete && !store.nodes.size ? html`<p class="empty">There are no nodes.</p>` : nothing}<cluster-map id="map" ?hidden=${store.complete && !store.nodes.size}></cluster-map>`)}
      </section>
      <div class="side">${queuesCard(page)}${nextCard(page)}${changesCard(page)}</div>
    </div>`;
}

/**
 * After the view was drawn.
 * @param {import("../main.js").Page} page
 */
export function fillCluster(page) {
  const by = page.query.by || "queue";
  page.find("cluster-map")?.show({ store: page.store, by });
  fillNodes(page);
}

/**
 * What stands in the place of what a user may not see.
 * @param {boolean | undefined} allowed
 * @param {string} what
 */
export function refused(allowed, what) {
  return allowed === false ? html`<p class="empty">You may not list ${what} of this cluster.</p>` : null;
}

function figures(store) {
  const { gpus, held, free, ready, nodes, states, eldest } = store.figures();
  const part = gpus ? Math.round((100 * held) / gpus) : 0;
  const tell = (value, words, kind = "") => html`<li class=${kind}><b>${value}</b><span>${words}</span></li>`;
  const other = nodes - ready;
  const longest = Number.isFinite(eldest) ? `, the longest for ${duration(store.now() - eldest)}` : "";
  const windowMs = 1000 * (store.about?.evictionWindowSeconds ?? EVICTION_WINDOW_S);
  const again = [...store.gangs.values()].filter((each) => evictedAgain(each, store.now(), windowMs)).length;
  return html`<ul class="figures">
    ${store.about?.nodes === false
      ? nothing
      : html`${tell(`${part}\u202f%`, `${count(held)} of ${many(gpus, "GPU")} held`)}
        ${tell(count(free), `${free === 1 ? "GPU" : "GPUs"} free on ready nodes`, "good")}
        ${other ? tell(count(other), `of ${many(nodes, "node")} not ready`, "bad") : tell(count(ready), nodes ? `${nodes === 1 ? "node" : "nodes"} ready, all` : "nodes")}`}
    ${tell(count(states.Running ?? 0), `${states.Running === 1 ? "gang runs" : "gangs run"}${states.Starting ? `, ${count(states.Starting)} start` : ""}`)}
    ${tell(count(states.Waiting ?? 0), states.Waiting ? `${states.Waiting === 1 ? "gang waits" : "gangs wait"}${longest}` : "gangs wait", states.Waiting ? "warn" : "")}
    ${again ? tell(count(again), `${again === 1 ? "gang was" : "gangs were"} evicted more than once within ${duration(windowMs)}`, "bad") : nothing}
  </ul>`;
}

/** Whether a gang was evicted at least twice within the window before now; see docs/thrash.md. */
const evictedAgain = (gang, now, windowMs) =>
  (gang.evictions ?? []).filter((each) => now - moment(each.time) < windowMs).length > 1;

function choice(page, key, value, words, on) {
  return html`<button type="button" aria-pressed=${on} @click=${() => page.ask({ [key]: value })}>${words}</button>`;
}

function legend(page, by) {
  const { store, colours } = page;
  const swatch = (colour, words, kind = "") =>
    html`<li><i class=${`swatch ${kind}`} .style=${colour ? `background:${colour}` : ""}></i>${words}</li>`;
  const queues = by === "queue" ? [...store.queues.values()].filter((each) => amount(each.gpus.allocated) && !hasChildren(store, each)) : [];
  return html`<ul class="legend">
    ${queues.toSorted((a, b) => amount(b.gpus.allocated) - amount(a.gpus.allocated)).slice(0, 12)
      .map((each) => swatch(colours.ofQueue(each.metadata.name), name(each.metadata.name)))}
    ${swatch("", "free", "is-free")}${swatch(colours.ofNobody(), "held, not shown by whom")}${swatch("", "node not ready", "is-bad")}
  </ul>`;
}

const hasChildren = (store, queue) => [...store.queues.values()].some((each) => each.parent === queue.metadata.name);

function queuesCard({ store, colours }) {
  const queues = [...store.queues.values()].filter((each) => !hasChildren(store, each));
  if (!queues.length) return nothing;
  const most = Math.max(1, ...queues.map((each) => Math.max(amount(each.gpus.allocated), due(each))));
  return html`<section class="card" aria-labelledby="queues-title">
    <h2 id="queues-title"><a href="#/queues">Queues</a></h2>
    <ul class="bars">
      ${queues.toSorted((a, b) => amount(b.gpus.allocated) - amount(a.gpus.allocated)).slice(0, 8).map(
        (each) => html`<li>${queueMark(each.metadata.name, colours)}
          <span class="n">${count(amount(each.gpus.allocated))}${due(each) ? html`<small> of ${count(due(each))} due</small>` : nothing}</span>
          ${shareBar(each, most, colours)}</li>`,
      )}
    </ul>
  </section>`;
}

/** @param {any} queue @returns {number} GPUs that it is due */
export function due(queue) {
  return amount(queue.gpus.fairShare || queue.gpus.deserved);
}

/**
 * What a queue holds as a bar, with a mark where its due ends.
 * @param {any} queue
 * @param {number} most
 * @param {import("../data/colours.js").Colours} colours
 */
export function shareBar(queue, most, colours) {
  const held = amount(queue.gpus.allocated);
  const limit = due(queue);
  const part = (value) => `${Math.min(100, (100 * value) / most)}%`;
  return html`<svg class="share" aria-hidden="true" width="100%" height="10">
    <rect class="all" width="100%" height="10" rx="3"></rect>
    <rect width=${part(held)} height="10" rx="3" fill=${colours.ofQueue(queue.metadata.name)}></rect>
    ${limit ? html`<svg x=${part(limit)} overflow="visible"><rect class="due" x="-1.5" width="3" height="10"></rect></svg>` : nothing}
  </svg>`;
}

function nextCard({ store, colours }) {
  const next = [...store.gangs.values()].filter((each) => each.state === "Waiting").toSorted(byPosition);
  return html`<section class="card" aria-labelledby="next-title">
    <h2 id="next-title"><a href="#/waiting">Waits</a></h2>
    ${next.length ? nothing : html`<p class="soft">Nothing waits.</p>`}
    <ol class="next">${next.slice(0, NEXT).map(
      (each) => html`<li>${gangName(each)} ${queueMark(each.queue, colours)}<p class="clamp">${shown(each.message || each.reason)}</p></li>`,
    )}</ol>
  </section>`;
}

function changesCard({ store }) {
  const last = store.decisions.slice(-LAST).toReversed();
  return html`<section class="card" aria-labelledby="last-title">
    <h2 id="last-title"><a href="#/changes">What changed</a></h2>
    ${last.length ? nothing : html`<p class="soft">Nothing yet.</p>`}
    <ol class="last">${last.map(
      (each) => html`<li data-event=${each.event}><time datetime=${each.time}>${clock(moment(each.time), store.now())}</time><p class="clamp">${shown(each.message)}</p></li>`,
    )}</ol>
  </section>`;
}

function nodeTable(page) {
  const { query } = page;
  return html`<div class="filters">
      ${chooser("State", query.state ?? "", [...new Set([...page.store.nodes.values()].map((each) => each.state))].toSorted(), (state) => page.ask({ state }))}
      ${finder(query.text ?? "", (text) => page.ask({ text }))}
    </div><long-table id="nodes"></long-table>`;
}

const NODE_ORDERS = {
  name: (a, b) => a.metadata.name.localeCompare(b.metadata.name, "en", { numeric: true }),
  free: (a, b) => amount(a.freeGpus) - amount(b.freeGpus),
  state: (a, b) => a.state.localeCompare(b.state),
};

function fillNodes(page) {
  const table = page.find("#nodes");
  if (!table) return;
  const { store, query } = page;
  const sorted = query.sort || "name";
  const typed = (query.text ?? "").toLowerCase();
  const order = NODE_ORDERS[sorted.replace("-", "")] ?? NODE_ORDERS.name;
  const place = (node) => placeOf(node).join(", ");
  const rows = [...store.nodes.values()]
    .filter((each) => !query.state || each.state === query.state)
    .filter((each) => `${each.metadata.name} ${each.gpuType} ${place(each)} ${each.gangs?.join(" ")}`.toLowerCase().includes(typed))
    .toSorted((a, b) => (sorted.startsWith("-") ? order(b, a) : order(a, b)));
  table.show({
    label: "nodes",
    rows,
    sorted,
    sort: (sort) => page.ask({ sort }),
    tall: 48,
    card: 150,
    grid: "minmax(9rem,1.2fr) 8rem 6rem minmax(8rem,1fr) minmax(8rem,1fr) minmax(10rem,2fr)",
    empty: "No node is like that.",
    columns: [
      { title: "Node", sort: "name", cell: (node) => name(node.metadata.name) },
      { title: "State", sort: "state", cell: (node) => html`<span class=${node.state === "Ready" ? "good" : "bad"}>${shown(node.state)}</span>` },
      { title: "Free", sort: "free", kind: "n", cell: (node) => html`<span title=${(node.slots ?? []).map((_, at) => describeSlot(node, at, store)).join("\n")}>${shown(node.freeGpus)} of ${shown(node.gpus)}</span>` },
      { title: "GPU type", cell: (node) => (node.gpuType ? name(node.gpuType) : html`<span class="soft">not known</span>`) },
      { title: "Place", cell: (node) => name(place(node)) },
      { title: "Gangs", kind: "many", cell: (node) => gangsThere(node) },
    ],
  });
}

function gangsThere(node) {
  const some = (node.gangs ?? []).slice(0, 3).map((key) => gangOf(...key.split("/")));
  const rest = (node.gangs?.length ?? 0) - some.length;
  return html`${some}${rest > 0 ? html`<small>and ${rest} more</small>` : nothing}`;
}
