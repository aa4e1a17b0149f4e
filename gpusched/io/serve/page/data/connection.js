/** Keeps the store as the server is: reads everything, then follows the changes, for ever. */

import { ask, askAll, follow, hasToken, keepToken, Refusal } from "./api.js";
import { ENDED, SILENT, sayTrouble } from "./troubles.js";

/** The server says something every 15 s, if only that nothing is new. */
const SILENCE = 40_000;
const PAUSE = 500;
const PAUSE_MAX = 10_000;

const wait = (milliseconds, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

/** Where it stands is in `state`, and told by the event `state`. */
export class Connection extends EventTarget {
  /** @param {import("./store.js").Store} store */
  constructor(store) {
    super();
    this.store = store;
    /** `phase` is connecting, live, lost or refused (no token, or none that is known). */
    this.state = { phase: "connecting", message: "", heard: 0, again: 0 };
    this.revision = "";
    this.pause = PAUSE;
    this.retry = new AbortController();
    this.stop = null;
  }

  /** Try now, without waiting for the pause to end. */
  tryNow() {
    this.pause = PAUSE;
    this.retry.abort();
  }

  /** @param {string} token of a user; empty forgets the one that was kept */
  signIn(token) {
    keepToken(token);
    this.store.clear();
    this.revision = "";
    this.stop?.abort();
    this.tryNow();
  }

  /** Runs as long as the page is open. */
  async run() {
    for (;;) {
      // One attempt after the other.
      // oxlint-disable-next-line no-await-in-loop
      await this.#attempt();
      this.retry = new AbortController();
      const refused = this.state.phase === "refused";
      if (!refused) this.#be({ again: Date.now() + this.pause });
      // oxlint-disable-next-line no-await-in-loop
      await wait(refused ? 2 ** 30 : this.pause, this.retry.signal);
      this.pause = Math.min(PAUSE_MAX, this.pause * 2);
    }
  }

  async #attempt() {
    const stop = new AbortController();
    this.stop = stop;
    let silent = 0;
    const heard = () => {
      clearTimeout(silent);
      silent = setTimeout(() => stop.abort(), SILENCE);
      this.state.heard = Date.now();
    };
    try {
      heard();
      if (!this.revision) await this.#readAll(stop.signal, heard);
      for await (const event of this.#events(stop.signal, heard)) {
        if (event.event === "reset") {
          this.revision = "";
          await this.#readAll(stop.signal, heard);
          return;
        }
        this.#apply(event);
      }
      this.#lose(ENDED);
    } catch (error) {
      this.#explain(error, stop.signal.aborted);
    } finally {
      clearTimeout(silent);
      stop.abort();
    }
  }

  async *#events(signal, heard) {
    const changes = follow(`v1/changes?since=${encodeURIComponent(this.revision)}`, signal, () => {
      heard();
      this.pause = PAUSE;
      if (this.state.phase !== "live") this.#be({ phase: "live", message: "" });
    });
    yield* changes;
  }

  #explain(error, silent) {
    if (error instanceof Refusal && error.status === 401) {
      this.revision = "";
      this.store.clear();
      this.#be({ phase: "refused", message: sayTrouble(error, hasToken()) });
    } else {
      this.#lose(silent ? SILENT : sayTrouble(error));
    }
  }

  /** Whoever answers next may count its revisions anew: everything is read again. */
  #lose(message) {
    this.revision = "";
    this.store.lose(this.state.heard);
    this.#be({ phase: "lost", message });
  }

  async #readAll(signal, heard) {
    const { store } = this;
    const about = await ask("v1", signal);
    heard();
    store.about = about;
    store.setNow(about.now);
    const read = { gangs: [], nodes: [], queues: [], decisions: [] };
    const first = !store.complete;
    const take = (kind, put) => (items) => {
      heard();
      read[kind].push(...items);
      if (first) put?.(items);
    };
    await Promise.all([
      about.nodes === false || askAll("v1/nodes", signal, take("nodes", (items) => store.putNodes(items))),
      about.queues === false || ask("v1/queues", signal).then((list) => take("queues", (items) => store.putQueues(items))(list.items)),
      askAll("v1/gangs", signal, take("gangs", (items) => store.putGangs(items))),
      ask("v1/decisions", signal).then((list) => take("decisions")(list.items)).catch(absent),
    ]);
    store.replace(read);
    this.revision = String(about.revision);
  }

  #apply({ id, event, data }) {
    const { store } = this;
    if (event === "gangs") store.putGangs(data.items);
    else if (event === "nodes") store.putNodes(data.items);
    else if (event === "queues") store.putQueues(data.items);
    else if (event === "gone") store.remove(data);
    else if (event === "decision") store.addDecisions(data.items ?? [data]);
    if (data.now) store.setNow(data.now);
    if (id) this.revision = id;
  }

  #be(change) {
    Object.assign(this.state, change);
    this.dispatchEvent(new Event("state"));
  }
}

/** A server that does not tell old decisions tells new ones still. */
function absent(error) {
  if (!(error instanceof Refusal) || error.status !== 404) throw error;
}
