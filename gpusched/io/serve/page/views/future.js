/** The future: known ends of gangs that run and estimated starts of those that wait, on one axis of time. */

import { ask } from "../data/api.js";
import { clock, duration, many, moment, shown } from "../data/text.js";
import { sayTrouble } from "../data/troubles.js";
import { chooser, finder, gangOf, queueMark, timeChoice } from "../parts/bits.js";
import { html, nothing, svg } from "../vendor/lit-html.js";

const HOUR = 3_600_000;
const WINDOWS = { "1 h": HOUR, "6 h": 6 * HOUR, "1 d": 24 * HOUR, "7 d": 168 * HOUR };
const PAUSE = 2000;
const ROOM_BEFORE = 0.08;

const known = { items: [], asked: "", at: 0, missing: "", busy: false };

function read(page) {
  const { versions } = page.store;
  const asked = `${versions.gangs} ${versions.decisions}`;
  if (known.busy || known.asked === asked || !page.store.complete) return;
  const rest = known.at + PAUSE - Date.now();
  if (rest > 0) {
    clearTimeout(known.later);
    known.later = setTimeout(() => page.draw(), rest);
    return;
  }
  Object.assign(known, { busy: true, asked, at: Date.now() });
  ask("v1/future")
    .then(({ items }) => Object.assign(known, { items, missing: "" }))
    .catch((error) => Object.assign(known, { missing: sayTrouble(error) }))
    .finally(() => {
      known.busy = false;
      page.draw();
    });
}

/** Those that start first, then those that end first, then those that do not say when. */
const bySpan = (a, b) => {
  const rank = (each) => (each.what === "running" ? (each.to ? 1 : 2) : 0);
  const time = (each) => moment(each.what === "running" ? each.to || each.from : each.from) || 0;
  return rank(a) - rank(b) || time(a) - time(b) || (a.name < b.name ? -1 : 1);
};

/** @param {import("../main.js").Page} page */
export function showFuture(page) {
  read(page);
  const { query } = page;
  const typed = (query.text ?? "").toLowerCase();
  const rows = known.items
    .filter((each) => (!query.queue || each.queue === query.queue) && (!query.what || each.what === query.what))
    .filter((each) => `${each.namespace}/${each.kind}/${each.name} ${each.queue}`.toLowerCase().includes(typed))
    .toSorted(bySpan);
  page.rows = rows;
  page.span = WINDOWS[query.window] ?? fitting(rows, page.store.now());
  const told = (what, words) => `${many(rows.filter((each) => each.what === what).length, "gang")} ${words}`;
  return html`<h1 tabindex="-1">Future</h1>
    <p class="lead">${told("running", "running")}, ${told("expected", "with an estimated start")}. Where a gang does not say how long it runs, its end is open.</p>
    ${known.missing ? html`<p class="notice">${known.missing}</p>` : nothing}
    <div class="filters">
      ${chooser("Queue", query.queue ?? "", [...new Set(known.items.map((each) => each.queue))].filter(Boolean).toSorted(), (queue) => page.ask({ queue }))}
      ${chooser("What", query.what ?? "", ["running", "expected", "reserved"], (what) => page.ask({ what }))}
      ${timeChoice(query.window ?? "", WINDOWS, (window) => page.ask({ window }))}
      ${finder(query.text ?? "", (text) => page.ask({ text }))}
    </div>
    <long-table id="spans"></long-table>`;
}

function fitting(rows, now) {
  const ends = rows.map((each) => moment(each.to || each.from) - now).filter((each) => each > 0);
  const far = Math.max(HOUR / 4, ...ends.slice(0, 10_000));
  return Math.min(far * 1.1, 30 * 24 * HOUR);
}

/** @param {import("../main.js").Page} page */
export function fillFuture(page) {
  const now = page.store.now();
  const axis = { from: now - page.span * ROOM_BEFORE, to: now + page.span, now };
  page.find("#spans")?.show({
    label: "gangs in time",
    rows: page.rows ?? [],
    tall: 44,
    card: 130,
    grid: "minmax(9rem,1fr) minmax(6rem,.6fr) 4rem minmax(14rem,4fr)",
    empty: page.store.complete ? "Nothing runs, and nothing that waits has an estimated start." : "It is being read.",
    columns: [
      { title: "Gang", cell: (each) => gangOf(each.namespace, each.kind, each.name) },
      { title: "Queue", cell: (each) => queueMark(each.queue, page.colours) },
      { title: "GPUs", kind: "n", cell: (each) => shown(each.gpus) },
      { title: "Time", kind: "time", head: ticks(axis), cell: (each) => bar(each, axis, page) },
    ],
  });
}

const at = (time, { from, to }) => Math.max(0, Math.min(100, (100 * (time - from)) / (to - from)));

function ticks(axis) {
  const rest = axis.to - axis.now;
  const step = [60e3, 300e3, 900e3, HOUR / 2, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 72 * HOUR, 168 * HOUR].find((each) => rest / each <= 5) ?? rest / 5;
  const marks = [];
  for (let time = axis.now + step; time < axis.to - step / 4; time += step) marks.push(time);
  return html`<span class="visually-hidden">Time</span><span class="ticks" aria-hidden="true">
    <b .style=${`left:${at(axis.now, axis)}%`}>now</b>${marks.map((time) => html`<i .style=${`left:${at(time, axis)}%`}>${clock(time, axis.now, false)}</i>`)}</span>`;
}

/** What a bar says, in words. */
export function spanWords(each, now) {
  const from = moment(each.from);
  const to = moment(each.to);
  const end = Number.isFinite(to) ? (to > now ? `ends in ${duration(to - now)}` : `should have ended ${duration(now - to)} ago`) : "end not known";
  if (each.what === "running") return `runs since ${clock(from, now, false)}, ${end}`;
  const start = from > now ? `in ${duration(from - now)}` : "now";
  return each.what === "reserved" ? `room is reserved ${start}` : `expected to start ${start}`;
}

function bar(each, axis, page) {
  const from = Number.isFinite(moment(each.from)) ? moment(each.from) : axis.from;
  const end = Number.isFinite(moment(each.to)) ? moment(each.to) : axis.to;
  const x = at(from, axis);
  const width = Math.max(0.6, at(end, axis) - x);
  const words = spanWords(each, axis.now);
  const kind = `${each.what}${each.to ? "" : " open"}`;
  return html`<span class="span">
    <svg width="100%" height="14" aria-hidden="true">
      ${svg`<rect class=${kind} x=${`${x}%`} width=${`${width}%`} height="14" rx="3" fill=${page.colours.ofQueue(each.queue)} stroke=${page.colours.ofQueue(each.queue)}></rect>
      <rect class="now" x=${`${at(axis.now, axis)}%`} width="2" height="14"></rect>`}
    </svg><small>${words}</small></span>`;
}
