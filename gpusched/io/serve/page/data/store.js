/** What the page knows of the cluster. Whoever shows it listens to `change`. */

import { amount, keyOf, moment } from "./text.js";

const DECISIONS_MAX = 2000;
const SAMPLES_MAX = 3600;
const SAMPLE_PAUSE = 1000;
const CLOCKS_DIFFER = 90_000;

const noSamples = () => ({ at: [], queues: new Map(), gaps: [], lost: 0 });

/** Gangs, nodes, queues and decisions as the server told them last. */
export class Store extends EventTarget {
  constructor() {
    super();
    this.about = null;
    this.gangs = new Map();
    this.nodes = new Map();
    this.queues = new Map();
    this.decisions = [];
    /** Moments and GPUs of each queue then, since the page was opened, but for gaps without connection. */
    this.samples = noSamples();
    /** Counts changes of each sort, so that views know what to draw again. */
    this.versions = { gangs: 0, nodes: 0, queues: 0, decisions: 0 };
    this.complete = false;
    this.skew = 0;
  }

  /** @returns {number} now by the server's clock, in milliseconds since the epoch */
  now() {
    return Date.now() + this.skew;
  }

  /**
   * The server's moment.
   * @param {string} text RFC 3339
   */
  setNow(text) {
    const at = moment(text);
    // It tells when it decided last, which may be a while ago: a small difference says nothing.
    if (Number.isFinite(at) && Math.abs(at - this.now()) > CLOCKS_DIFFER) this.skew = at - Date.now();
  }

  /** @param {any[]} items gangs as they are now */
  putGangs(items) {
    for (const each of items) this.gangs.set(keyOf(each), each);
    this.#tell("gangs");
  }

  /** @param {any[]} items nodes as they are now */
  putNodes(items) {
    for (const each of items) this.nodes.set(each.metadata.name, each);
    this.#tell("nodes");
  }

  /** @param {any[]} items queues as they are now */
  putQueues(items) {
    for (const each of items) this.queues.set(each.metadata.name, each);
    this.#sample();
    this.#tell("queues");
  }

  /** @param {any[]} items decisions, oldest first */
  addDecisions(items) {
    this.decisions.push(...items);
    if (this.decisions.length > DECISIONS_MAX) this.decisions.splice(0, this.decisions.length - DECISIONS_MAX);
    this.#tell("decisions");
  }

  /** @param {{gangs?: string[], nodes?: string[], queues?: string[]}} gone what is there no more */
  remove(gone) {
    for (const kind of ["gangs", "nodes", "queues"]) {
      for (const name of gone[kind] ?? []) this[kind].delete(name);
      if (gone[kind]?.length) this.#tell(kind);
    }
  }

  /**
   * Everything was read again: what of it was not there is gone.
   * @param {{gangs: any[], nodes: any[], queues: any[], decisions: any[]}} read
   */
  replace(read) {
    this.gangs = new Map(read.gangs.map((each) => [keyOf(each), each]));
    this.nodes = new Map(read.nodes.map((each) => [each.metadata.name, each]));
    this.queues = new Map(read.queues.map((each) => [each.metadata.name, each]));
    this.decisions = read.decisions.slice(-DECISIONS_MAX);
    this.complete = true;
    this.#sample();
    for (const kind of Object.keys(this.versions)) this.#tell(kind);
  }

  /** Nothing is known any more: another user looks. */
  clear() {
    this.replace({ gangs: [], nodes: [], queues: [], decisions: [] });
    this.samples = noSamples();
    this.about = null;
    this.complete = false;
  }

  /** @returns {{gpus: number, held: number, free: number, ready: number, nodes: number, states: Record<string, number>, eldest: number}} */
  figures() {
    const key = `${this.versions.nodes} ${this.versions.gangs}`;
    if (this.figuresOf === key) return this.lastFigures;
    const found = { gpus: 0, held: 0, free: 0, ready: 0, nodes: this.nodes.size, states: {}, eldest: Infinity };
    for (const node of this.nodes.values()) {
      found.gpus += amount(node.gpus);
      found.held += amount(node.gpus) - amount(node.freeGpus);
      found.free += node.state === "Ready" ? amount(node.freeGpus) : 0;
      found.ready += node.state === "Ready" ? 1 : 0;
    }
    for (const gang of this.gangs.values()) {
      found.states[gang.state] = (found.states[gang.state] ?? 0) + 1;
      if (gang.state === "Waiting") found.eldest = Math.min(found.eldest, moment(gang.since) || Infinity);
    }
    this.figuresOf = key;
    this.lastFigures = found;
    return found;
  }

  /**
   * Nothing is heard any more: what comes next does not follow on what was.
   * @param {number} heard when something was heard last, by this machine's clock
   */
  lose(heard) {
    const { at, queues, lost } = this.samples;
    if (!at.length || lost) return;
    this.samples.lost = Math.max(heard + this.skew, at.at(-1) + 1);
    at.push(this.samples.lost);
    for (const series of queues.values()) series.push(null);
  }

  #sample() {
    const now = this.now();
    const { at, queues, gaps, lost } = this.samples;
    if (lost) {
      gaps.push({ from: lost, to: now });
      this.samples.lost = 0;
    } else if (at.length && now - at.at(-1) < SAMPLE_PAUSE) {
      at.pop();
      for (const series of queues.values()) series.pop();
    }
    at.push(Math.max(now, at.at(-1) ?? 0));
    for (const [name, { gpus }] of this.queues) {
      if (!queues.has(name)) queues.set(name, Array.from({ length: at.length - 1 }, () => null));
      queues.get(name).push({
        held: amount(gpus.allocated),
        due: gpus.fairShare || gpus.deserved ? amount(gpus.fairShare || gpus.deserved) : null,
        borrowed: amount(gpus.borrowed),
        requested: amount(gpus.requested),
      });
    }
    for (const series of queues.values()) if (series.length < at.length) series.push(null);
    if (at.length > SAMPLES_MAX) {
      at.splice(0, SAMPLES_MAX / 2);
      for (const series of queues.values()) series.splice(0, SAMPLES_MAX / 2);
    }
  }

  #tell(kind) {
    this.versions[kind] += 1;
    this.dispatchEvent(new Event("change"));
  }
}
