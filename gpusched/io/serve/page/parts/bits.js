/** Small pieces that several views share. */

import { clock, duration, gangLink, keyOf, moment, shown, wholeTime } from "../data/text.js";
import { html, nothing } from "../vendor/lit-html.js";

const USUAL = 15;

/** @returns {number} how large text is, 1 where it is as usual: on a wall it is larger, and what is around it too */
export const textUnit = () => Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / USUAL;

/**
 * A name of others: as text, apart from the direction of what stands beside it.
 * @param {string} text
 */
export const name = (text) => html`<bdi class="name">${shown(text)}</bdi>`;

/** @param {any} gang as a list of gangs tells it */
export const gangName = (gang) => gangOf(gang.metadata.namespace, gang.gangKind, gang.metadata.name);

/**
 * @param {string} namespace
 * @param {string} kind
 * @param {string} called
 */
export const gangOf = (namespace, kind, called) =>
  html`<a class="gang" href=${gangLink(namespace, kind, called)}><bdi class="name">${shown(called)}</bdi><small>${shown(kind)} in <bdi>${shown(namespace)}</bdi></small></a>`;

/** @param {string} state of a gang */
export const stateMark = (state) => html`<span class="state" data-state=${state}>${shown(state)}</span>`;

/**
 * @param {string} queue
 * @param {import("../data/colours.js").Colours} colours
 */
export const queueMark = (queue, colours) =>
  queue ? html`<span class="queue"><i class="swatch" .style=${`background:${colours.ofQueue(queue)}`}></i>${name(queue)}</span>` : html`<span class="soft">none</span>`;

/**
 * When that was or will be, with how long that is from now.
 * @param {string} text a time of the server
 * @param {number} now
 */
export const when = (text, now) => {
  const at = moment(text);
  if (!Number.isFinite(at)) return html`<span class="soft">not known</span>`;
  const far = duration(Math.abs(at - now));
  return html`<time datetime=${text} title=${wholeTime(at)}>${at > now ? `in ${far}` : far}<small>${at > now ? "" : "since "}${clock(at, now, false)}</small></time>`;
};

/** @param {any} gang */
export const gpus = (gang) => (gang.gpus ? shown(gang.gpus) : html`<span class="soft">0</span>`);

/**
 * Whether any text of a gang holds what was typed.
 * @param {any} gang
 * @param {string} typed in lower case
 */
export const speaksOf = (gang, typed) =>
  !typed || `${keyOf(gang)} ${gang.queue} ${gang.reason} ${gang.message} ${gang.owner?.name ?? ""}`.toLowerCase().includes(typed);

/**
 * A box to choose one of several, or all.
 * @param {string} label
 * @param {string} chosen
 * @param {string[]} values
 * @param {(value: string) => void} choose
 */
export const chooser = (label, chosen, values, choose) =>
  html`<label class="field"><span>${label}</span>
    <select @change=${(event) => choose(event.target.value)} .value=${chosen}>
      <option value="" ?selected=${!chosen}>all</option>
      ${(chosen && !values.includes(chosen) ? [chosen, ...values] : values).map(
        (each) => html`<option value=${each} ?selected=${each === chosen}>${shown(each)}</option>`,
      )}
    </select></label>`;

/**
 * A box for text that rows must hold.
 * @param {string} typed
 * @param {(value: string) => void} type
 */
export const finder = (typed, type) =>
  html`<label class="field wide"><span>Text</span>
    <input type="search" data-find autocomplete="off" spellcheck="false" .value=${typed} placeholder="name, reason, sentence" @input=${(event) => type(event.target.value)}></label>`;

/**
 * How much time is shown.
 * @param {string} chosen one of the windows, empty for as much as there is
 * @param {Record<string, number>} windows milliseconds by what they are called
 * @param {(window: string) => void} choose
 */
export const timeChoice = (chosen, windows, choose) =>
  html`<span class="choice" role="group" aria-label="Time shown">
    ${["", ...Object.keys(windows)].map((each) => html`<button type="button" aria-pressed=${chosen === each} @click=${() => choose(each)}>${each || "fit"}</button>`)}
  </span>`;

/** @param {unknown} value */
export const orNothing = (value) => value || nothing;
