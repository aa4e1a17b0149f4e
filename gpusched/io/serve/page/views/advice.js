/** What would let a gang start that waits: asked for by a button, decided beside the daemon on a copy of the cluster. */

import { ask } from "../data/api.js";
import { clock, many, moment, shown } from "../data/text.js";
import { sayTrouble } from "../data/troubles.js";
import { name, when } from "../parts/bits.js";
import { html, nothing } from "../vendor/lit-html.js";

const NODES_NAMED = 4;

/** The answer about the gang that is shown. */
let answer = { key: "", busy: false, told: null, trouble: "" };

function question(page, key) {
  const mine = { key, busy: true, told: null, trouble: "" };
  answer = mine;
  page.draw();
  ask(`v1/gangs/${key.split("/").map(encodeURIComponent).join("/")}/advice`)
    .then((told) => Object.assign(mine, { told }))
    .catch((error) => Object.assign(mine, { trouble: error.message || sayTrouble(error) }))
    .finally(() => {
      mine.busy = false;
      page.draw();
    });
}

/**
 * The card with the question, or with its answer.
 * @param {import("../main.js").Page} page
 * @param {string} key of a gang that waits
 */
export function adviceCard(page, key) {
  const mine = answer.key === key ? answer : { key, busy: false, told: null, trouble: "" };
  const title = mine.told ? "Ask again" : "What would help?";
  return html`<section class="card" id="advice" aria-labelledby="advice-title" aria-busy=${mine.busy}>
    <h2 id="advice-title">What would let it start</h2>
    ${mine.told ? suggestions(mine.told, page.store.now()) : nothing}
    ${mine.trouble ? html`<p class="notice">${shown(mine.trouble)}</p>` : nothing}
    <p aria-live="polite">${mine.busy ? "Changes are tried on a copy of the cluster; that takes some seconds." : nothing}</p>
    <button type="button" ?disabled=${mine.busy} @click=${() => question(page, key)}>${title}</button>
  </section>`;
}

function suggestions(told, now) {
  const { never, suggestions: found, unchanged } = told;
  if (unchanged.kind === "now" || unchanged.kind === "afterEvictions")
    return html`<p>It starts ${startWords(unchanged, now)}: nothing needs to be changed.</p>`;
  return html`${never ? html`<p>It starts ${shown(never.sentence)}.</p>` : nothing}
    ${found.length ? nothing : html`<p class="soft">No change that was tried would let it start.</p>
        <ul>${(told.inTheWay ?? []).map((each) => html`<li>${shown(each)}</li>`)}</ul>`}
    <ol class="advice">${found.map(
      (each) => html`<li data-change=${each.change}><b>${shown(each.message)}</b>: ${suggestedStart(each, now)}
        ${(each.forbiddenBy ?? []).map((by) => html`<p class="soft" data-rule=${by.rule}>Forbidden now: ${shown(by.message)}.</p>`)}
        ${each.command ? html`<pre><code>${shown(each.command)}</code></pre>` : nothing}</li>`,
    )}</ol>
    <p class="soft">Decided on the cluster of ${clock(moment(told.asOf), now)}.${told.isCut ? ` After ${many(told.decisions, "decision")} the search was ended: other changes may help as well.` : nothing}</p>
    ${(told.remarks ?? []).map((each) => html`<p class="soft">${shown(each)}.</p>`)}`;
}

function suggestedStart(each, now) {
  if (each.change !== "endOfOthers" || each.start.kind !== "now") return startWords(each.start, now);
  const end = each.at ? html`expected ${when(each.at, now)}` : "nothing tells when that is";
  return html`${end}${nodeWords(each.start)}`;
}

function startWords(start, now) {
  if (start.kind === "now") return html`now${nodeWords(start)}`;
  if (start.kind === "afterEvictions") {
    const named = start.evicts.filter((each) => !each.hidden).map((each) => `${each.namespace}/${each.name}`);
    const hidden = start.evicts.length - named.length;
    const all = [...named, ...(hidden ? [`${many(hidden, "workload")} of other namespaces`] : [])];
    const evicted = html`evicted pods of ${all.map((each, at) => html`${at ? ", " : ""}${name(each)}`)}`;
    return html`as soon as ${all.length ? evicted : "leaving pods"} have ended${nodeWords(start)}`;
  }
  if (start.kind === "expected") return html`expected ${when(start.at, now)}`;
  return "at a time that nothing tells";
}

function nodeWords(start) {
  const more = start.nodes.length - NODES_NAMED;
  const named = start.nodes.slice(0, NODES_NAMED);
  if (!named.length) return nothing;
  return html`, on ${named.map((each, at) => html`${at ? ", " : ""}${name(each.name)}`)}${more > 0 ? ` and ${more} more` : ""}`;
}
