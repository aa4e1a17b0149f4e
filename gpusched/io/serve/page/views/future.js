/** The future: known ends of gangs that run, reserved room and estimated starts of those that wait, and Reservations, on one axis of time. */

import { ask } from "../data/api.js";
import { clock, duration, many, moment, shown } from "../data/text.js";
import { sayTrouble } from "../data/troubles.js";
import { chooser, finder, gangOf, queueMark, timeChoice } from "../parts/bits.js";
import { html, nothing } from "../vendor/lit-html.js";

const HOUR = 3_600_000;
const WINDOWS = { "1 h": HOUR, "6 h": 6 * HOUR, "1 d": 24 * HOUR, "7 d": 168 * HOUR };
const PAUSE = 2000;
const ROOM_BEFORE = 0.08;
/** How much of the axis what has no known end fades over. */
const TAIL = 12;
/** So many of all known times are within the time that is shown where none is chosen. */
const MOST = 0.9;
const STEPS = [60e3, 300e3, 600e3, HOUR / 4, HOUR / 2, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 48 * HOUR, 72 * HOUR, 168 * HOUR];
const TICKS = 6;
const KINDS = { running: "runs until its known end", reserved: "room is reserved", expected: "estimated start", kept: "kept by a Reservation" };

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
  const rank = (each) => (each.what === "kept" ? -1 : each.what === "running" ? (each.to ? 1 : 2) : 0);
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
  const now = page.store.now();
  const span = WINDOWS[query.window] ?? fitting(rows, now);
  page.axis = { from: now - span * ROOM_BEFORE, to: now + span, now };
  page.axis.marks = marksOf(page.axis);
  const told = (what, words) => `${many(rows.filter((each) => each.what === what).length, "gang")} ${words}`;
  return html`<h1 tabindex="-1">Future</h1>
    <p class="lead">${told("running", "running")}, ${told("reserved", "with reserved room")}, ${told("expected", "with an estimated start")}, ${many(rows.filter((each) => each.what === "kept").length, "window")} of Reservations.</p>
    ${known.missing ? html`<p class="notice">${known.missing}</p>` : nothing}
    <div class="filters">
      ${chooser("Queue", query.queue ?? "", [...new Set(known.items.map((each) => each.queue))].filter(Boolean).toSorted(), (queue) => page.ask({ queue }))}
      ${chooser("What", query.what ?? "", Object.keys(KINDS), (what) => page.ask({ what }))}
      ${timeChoice(query.window ?? "", WINDOWS, (window) => page.ask({ window }))}
      ${finder(query.text ?? "", (text) => page.ask({ text }))}
    </div>
    <ul class="legend spans">${Object.entries(KINDS).map(([what, words]) => html`<li><i class=${`span-bar ${what}`}></i>${words}</li>`)}<li><i class="span-bar running open"></i>end not known</li></ul>
    <div class="narrow-axis">${ticks(page.axis, 3.6)}</div>
    <long-table id="spans"></long-table>`;
}

/** As much time as nearly all of what is known needs; what is later ends at the edge. */
function fitting(rows, now) {
  const times = rows.map((each) => moment(each.to || each.from) - now).filter((each) => each > 0).toSorted((a, b) => a - b);
  const far = times[Math.floor((times.length - 1) * MOST)] ?? 0;
  return Math.min(Math.max(HOUR / 4, far * 1.15), 30 * 24 * HOUR);
}

/** @param {import("../main.js").Page} page */
export function fillFuture(page) {
  const { axis } = page;
  page.find("#spans")?.show({
    label: "gangs in time",
    rows: page.rows ?? [],
    tall: 52,
    card: 108,
    grid: "minmax(9rem,1fr) minmax(6rem,.6fr) 4rem minmax(14rem,4fr)",
    empty: page.store.complete ? "Nothing runs, and nothing that waits has an estimated start." : "It is being read.",
    columns: [
      { title: "Gang", cell: (each) => (each.what === "kept" ? html`Reservation ${each.name}` : gangOf(each.namespace, each.kind, each.name)) },
      { title: "Queue", cell: (each) => queueMark(each.queue, page.colours) },
      { title: "GPUs", kind: "n", cell: (each) => shown(each.gpus) },
      { title: "Time", kind: "time", head: ticks(axis), cell: (each) => bar(each, axis, page) },
    ],
  });
}

const at = (time, { from, to }) => Math.max(0, Math.min(100, (100 * (time - from)) / (to - from)));

/** Round times of this place between now and the end of the axis. */
function marksOf(axis) {
  const step = STEPS.find((each) => (axis.to - axis.now) / each <= TICKS) ?? STEPS.at(-1);
  const zone = new Date(axis.now).getTimezoneOffset() * 60_000;
  const marks = [];
  for (let time = Math.ceil((axis.now - zone) / step) * step + zone; time < axis.to; time += step) marks.push(time);
  return marks;
}

function ticks(axis, most = 10) {
  const room = (axis.to - axis.from) / most;
  const fit = [];
  for (const time of axis.marks) if (time - (fit.at(-1) ?? axis.now) > room && axis.to - time > room * 0.75) fit.push(time);
  return html`<span class="visually-hidden">Time</span><span class="ticks" aria-hidden="true">
    <b .style=${`left:${at(axis.now, axis)}%`}>now</b>${fit.map((time) => html`<i .style=${`left:${at(time, axis)}%`}>${clock(time, axis.now, false)}</i>`)}</span>`;
}

/** What a bar says, in words. */
export function spanWords(each, now) {
  const from = moment(each.from);
  const to = moment(each.to);
  const end = Number.isFinite(to) ? (to > now ? `ends in ${duration(to - now)}` : `should have ended ${duration(now - to)} ago`) : "end not known";
  if (each.what === "running") return `runs since ${clock(from, now, false)}, ${end}`;
  if (each.what === "kept") return `${many(each.nodes.length, "node")} kept ${from > now ? `from ${clock(from, now, false)} until ${clock(to, now, false)}` : `until ${clock(to, now, false)}`}`;
  const start = from > now ? `in ${duration(from - now)}` : "now";
  if (each.what === "expected") return `expected to start ${start}`;
  const until = Number.isFinite(to) && to > now ? `, to end in ${duration(to - now)}` : "";
  return `${many(each.nodes.length, "node")} ${from > now ? `reserved ${start}` : "kept for it now"}${until}`;
}

function bar(each, axis, page) {
  const from = Number.isFinite(moment(each.from)) ? moment(each.from) : axis.now;
  const end = moment(each.to);
  const x = at(from, axis);
  const now = at(axis.now, axis);
  const reach = Number.isFinite(end) ? at(end, axis) : Math.min(100, Math.max(x, now) + TAIL);
  const line = (time) => html`<i class="line" .style=${`left:${at(time, axis)}%`}></i>`;
  return html`<span class="span">
    <span class="lane" aria-hidden="true">
      ${axis.marks.map(line)}
      <i class=${`span-bar ${each.what}${Number.isFinite(end) ? "" : " open"}`} .style=${`left:${x}%;width:${Math.max(0.6, reach - x)}%;--c:${page.colours.ofQueue(each.queue)}`}></i>
      <i class="line now" .style=${`left:${now}%`}></i>
    </span><small>${spanWords(each, axis.now)}</small></span>`;
}
