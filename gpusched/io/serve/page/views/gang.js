/** One gang: how it stands, why, its pods with their GPUs, its places on the map, and its whole story. */

import { ask } from "../data/api.js";
import { clock, count, keyOf, many, moment, placeOf, shown } from "../data/text.js";
import { sayTrouble } from "../data/troubles.js";
import { gangOf, gpus, name, queueMark, stateMark, when } from "../parts/bits.js";
import { adviceCard } from "./advice.js";
import { spanWords } from "./future.js";
import { placed } from "./waiting.js";
import { html, nothing } from "../vendor/lit-html.js";

const MAP_HEIGHT = 360;
const NODES_MAX = 400;
const GONE = "No such gang waits or runs, or you may not list pods of its namespace; gpusched get history tells what became of it.";

/** What the server told of the gang that is shown; asked again when the gang changed. */
let known = { key: "", of: null, asked: -1, told: null, missing: "" };

function read(page, key) {
  const { store } = page;
  if (known.key !== key) known = { key, of: null, asked: -1, told: null, missing: "" };
  const asked = `${store.versions.decisions}`;
  const now = store.gangs.get(key) ?? null;
  if ((known.of === now && known.asked === asked) || known.busy) return;
  const mine = Object.assign(known, { of: now, asked, busy: true });
  ask(`v1/gangs/${key.split("/").map(encodeURIComponent).join("/")}`)
    .then((told) => Object.assign(mine, { told, missing: "" }))
    .catch((error) => Object.assign(mine, { missing: error.status === 404 ? GONE : sayTrouble(error) }))
    .finally(() => {
      mine.busy = false;
      page.draw();
    });
}

/** @param {import("../main.js").Page} page */
export function showGang(page) {
  const [namespace, kind, called] = page.path;
  const key = keyOf({ metadata: { namespace, name: called }, gangKind: kind });
  read(page, key);
  const gang = page.store.gangs.get(key) ?? known.told;
  const gone = known.told && page.store.complete && !page.store.gangs.has(key);
  const trouble = gone ? "It is there no more; this is what was known of it last." : known.missing;
  return html`<h1 tabindex="-1">${name(called)} <small>${shown(kind)} in <bdi>${shown(namespace)}</bdi></small></h1>
    ${trouble ? html`<p class="notice">${trouble}</p>` : nothing}
    ${gang ? facts(page, gang) : known.missing ? nothing : html`<p class="empty">It is being read.</p>`}
    ${known.told ? details(page, known.told) : nothing}`;
}

function facts(page, gang) {
  const now = page.store.now();
  const fact = (title, value) => html`<div><dt>${title}</dt><dd>${value}</dd></div>`;
  return html`<section class="card standing" aria-label="How it stands">
    <p class="why">${stateMark(gang.state)} ${gang.reason ? html`<b>${shown(gang.reason)}</b>` : nothing} ${shown(gang.message)}</p>
    <dl class="facts">
      ${fact("Queue", queueMark(gang.queue, page.colours))}
      ${gang.position ? fact("Position", gang.position) : nothing}
      ${gang.state === "Waiting" ? fact("Estimated start", when(gang.estimatedStartTime, now)) : nothing}
      ${gang.estimatedStartLatest ? fact("Four of five start", html`${when(gang.estimatedStartEarliest, now)} to ${when(gang.estimatedStartLatest, now)}`) : nothing}
      ${gang.estimateChange ? fact("Estimate moved", shown(gang.estimateChange)) : nothing}
      ${fact("GPUs", html`${gpus(gang)}${gang.gpuType ? html` <small>${shown(gang.gpuType)}</small>` : nothing}`)}
      ${fact("Pods", placed(gang))}
      ${fact("Priority", html`${gang.priority}${gang.preemptible === false ? html` <small>cannot be preempted</small>` : nothing}`)}
      ${fact(gang.state === "Running" ? "Runs" : "Waits", when(gang.since, now))}
      ${gang.expectedEndTime ? fact("Expected end", when(gang.expectedEndTime, now)) : nothing}
      ${gang.owner ? fact("Made by", html`${shown(gang.owner.kind)} ${name(gang.owner.name)}`) : nothing}
    </dl>
  </section>`;
}

function details(page, told) {
  const { store } = page;
  const story = told.story ?? [];
  const room = told.room ? `${shown(spanWords({ ...told.room, what: "reserved" }, store.now()))}` : "";
  const nodes = told.nodes?.length ? told.nodes : (told.room?.nodes ?? []);
  return html`<div class="beside">
    <div class="stack">
      ${nodes.length && store.about?.nodes !== false
        ? html`<section class="card map" aria-labelledby="places-title"><h2 id="places-title">${told.nodes?.length ? `Its places on ${many(nodes.length, "node")}` : "Where it is to start"}</h2>
            ${room ? html`<p>${room}.</p>` : nothing}<cluster-map></cluster-map></section>`
        : nothing}
      <section class="card" aria-labelledby="pods-title"><h2 id="pods-title">Pods</h2><long-table id="pods"></long-table></section>
    </div>
    <div class="side">
      ${told.state === "Waiting" ? adviceCard(page, keyOf(told)) : nothing}
      ${told.order?.terms?.length || told.order?.message ? orderCard(told.order) : nothing}
      ${told.evictions?.length ? evictionsCard(told.evictions, store.now()) : nothing}
      <section class="card" aria-labelledby="story-title"><h2 id="story-title">Its story</h2>
        ${story.length ? nothing : html`<p class="soft">Nothing was decided about it since the daemon started.</p>`}
        <ol class="story">${story.map(
          (each) => html`<li data-event=${each.event}><time datetime=${each.time}>${clock(moment(each.time), store.now())}</time><b>${shown(each.event)}</b><p>${shown(each.message)}</p></li>`,
        )}</ol></section>
    </div>
  </div>`;
}

/** Its turn, what put it there, and after whom: the terms in the order in which they count. */
function orderCard(order) {
  const of = (position, total) => `${count(position)}${total ? ` of ${count(total)}` : ""}`;
  // A policy may have several terms: the sentence holds the one that decided.
  const own = (each) => (each.policy === order.decidedBy && order.message.includes(each.message) ? "decided" : "");
  return html`<section class="card" aria-labelledby="order-title"><h2 id="order-title">Its place in the order</h2>
    ${order.position ? html`<p><b>${of(order.position, order.total)}</b> of all, ${of(order.queuePosition, order.queueTotal)} in its queue</p>` : nothing}
    ${order.message ? html`<p>It ${shown(order.message).replace(/\.$/u, "")}.</p>` : nothing}
    ${order.after ? html`<p>${gangOf(order.after.namespace, order.after.kind, order.after.name)}</p>` : nothing}
    <ol class="terms">${(order.terms ?? []).map(
      (each) => html`<li class=${own(each)}><b>${shown(each.policy)}</b><span class="n">${shown(each.value)}</span>
        <p>${shown(each.message)}</p></li>`,
    )}</ol></section>`;
}

/** The last times that it was evicted below its minimum, the newest first, and what that cost. */
function evictionsCard(evictions, now) {
  const lost = evictions.reduce((sum, each) => sum + (each.gpuSeconds ?? 0), 0);
  return html`<section class="card" aria-labelledby="evicted-title"><h2 id="evicted-title">Evicted ${evictions.length === 1 ? "once" : `${count(evictions.length)} times`}</h2>
    <p>${count(lost)} GPU-seconds of work were lost.</p>
    <ol class="story">${evictions.toReversed().map(
      (each) => html`<li data-event="loses"><time datetime=${each.time}>${clock(moment(each.time), now)}</time><b>${shown(each.action)}</b><p>${each.for ? html`for <bdi>${shown(each.for)}</bdi>` : shown(each.reason)}</p></li>`,
    )}</ol></section>`;
}

/** All nodes, or in a large cluster those of the domains that the gang is in. */
function around(store, told) {
  if (!told || store.nodes.size <= NODES_MAX) return undefined;
  const place = (node) => placeOf(node).join(" ");
  const places = told.nodes?.length ? told.nodes : (told.room?.nodes ?? []);
  const own = new Set(places.map((each) => store.nodes.get(each)).filter(Boolean).map(place));
  return [...store.nodes.values()].filter((each) => own.has(place(each)));
}

/** @param {import("../main.js").Page} page */
export function fillGang(page) {
  const { told, key } = known;
  page.find("cluster-map")?.show({ store: page.store, by: "queue", gang: key, height: MAP_HEIGHT, nodes: around(page.store, told), framed: told?.nodes?.length ? [] : (told?.room?.nodes ?? []) });
  page.find("#pods")?.show({
    label: "pods",
    rows: told?.members ?? [],
    tall: 40,
    card: 120,
    grid: "minmax(9rem,2fr) 6rem minmax(8rem,1.4fr) minmax(4rem,1fr) minmax(5rem,1fr)",
    empty: "It has no pods yet.",
    columns: [
      { title: "Pod", cell: (pod) => name(pod.name) },
      { title: "Phase", cell: (pod) => stateMark(pod.phase) },
      { title: "Node", cell: (pod) => (pod.node ? name(pod.node) : html`<span class="soft">none</span>`) },
      { title: "Slots", cell: (pod) => (pod.slots ? shown(pod.slots) : html`<span class="soft">none</span>`) },
      { title: "Role", cell: (pod) => name([pod.role, pod.subGroup].filter(Boolean).join(", ")) },
    ],
  });
}
