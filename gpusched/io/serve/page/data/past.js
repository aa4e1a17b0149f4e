/** Queues before this page was opened, and while it was not connected: what the server noted each minute. */

import { ask } from "./api.js";
import { moment } from "./text.js";
import { sayTrouble } from "./troubles.js";

const PAUSE = 30_000;
/** As many queues as the server tells at once. */
const QUEUES_MAX = 50;
/** More than so many periods between two samples: nobody knows what was between. */
const HOLE = 2.5;

const nothingKnown = () => ({ at: [], queues: new Map(), period: 60_000, since: Number.NaN });

/** The server's samples of some queues; asked again when others are shown or something is missing. */
export class QueuePast {
  constructor() {
    this.asked = "";
    this.askedAt = 0;
    this.busy = false;
    this.missing = "";
    this.own = null;
    this.known = nothingKnown();
  }

  /**
   * Reads what is missing, if anything is.
   * @param {string[]} names of queues
   * @param {import("./store.js").Store["samples"]} own
   * @param {() => void} done is called when something was read
   */
  read(names, own, done) {
    // Another user looks: what the one before was told is not for this one.
    if (this.own && this.own !== own) Object.assign(this, { asked: "", known: nothingKnown() });
    this.own = own;
    const { at, queues, period } = this.known;
    const others = names.filter((each) => !queues.has(each));
    const hole = at.length > 0 && own.at[0] - at.at(-1) > 2 * HOLE * period;
    const asked = JSON.stringify([others, own.gaps.length, hole ? own.at[0] : 0]);
    const soon = hole && Date.now() - this.askedAt < PAUSE;
    if (this.busy || this.asked === asked || soon || !names.length) return;
    Object.assign(this, { busy: true, asked, askedAt: Date.now() });
    const all = [...names, ...[...queues.keys()].filter((each) => !names.includes(each))];
    const query = new URLSearchParams(all.slice(0, QUEUES_MAX).map((each) => ["queue", each]));
    ask(`v1/queues/series?${query}`)
      .then((told) => Object.assign(this, { known: followedBy(this.known, readSeries(told)), missing: "" }))
      .catch((error) => Object.assign(this, { missing: sayTrouble(error) }))
      .finally(() => {
        this.busy = false;
        done();
      });
  }
}

function readSeries({ times, items, periodSeconds }) {
  const queues = new Map();
  for (const each of items) {
    queues.set(
      each.name,
      times.map((_, at) =>
        each.allocated[at] === null
          ? null
          : { held: each.allocated[at], due: each.due[at], borrowed: each.borrowed[at], requested: each.requested[at] },
      ),
    );
  }
  const at = times.map(moment);
  return { at, queues, period: periodSeconds * 1000, since: at[0] ?? Number.NaN };
}

/** What was known, and what a server tells now: one that began anew knows nothing of before. */
function followedBy(before, now) {
  const old = before.at.filter((at) => !now.at.length || at < now.at[0]);
  const none = (samples) => Array.from({ length: samples.length }, () => null);
  const queues = new Map();
  for (const name of new Set([...before.queues.keys(), ...now.queues.keys()])) {
    const values = before.queues.get(name)?.slice(0, old.length) ?? none(old);
    queues.set(name, [...values, ...(now.queues.get(name) ?? none(now.at))]);
  }
  return { at: [...old, ...now.at], queues, period: now.period, since: now.since };
}

/**
 * What the page saw itself, and what the server noted where the page saw nothing; null between, where nobody did.
 * @param {import("./store.js").Store["samples"]} own
 * @param {QueuePast["known"]} past
 * @param {string[]} names of queues
 * @returns {{at: number[], queues: Map<string, any[]>}}
 */
export function joinSamples(own, past, names) {
  const unseen = (at) => !own.at.length || at < own.at[0] || own.gaps.some((gap) => at > gap.from && at < gap.to);
  const rows = own.at.map((at, number) => ({ at, number, from: own.queues }));
  for (const [number, at] of past.at.entries()) if (unseen(at)) rows.push({ at, number, from: past.queues });
  rows.sort((a, b) => a.at - b.at);
  const whole = [];
  for (const row of rows) {
    const before = whole.at(-1);
    const hole = row.from === past.queues && before?.from === past.queues && row.at - before.at > HOLE * past.period;
    if (hole) whole.push({ at: before.at + past.period, number: -1, from: past.queues });
    whole.push(row);
  }
  const queues = names.map((name) => [name, whole.map(({ number, from }) => from.get(name)?.[number] ?? null)]);
  return { at: whole.map((row) => row.at), queues: new Map(queues) };
}
