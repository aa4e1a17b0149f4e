/** The page: its views by address, its head, and when it draws. */

import { hasToken, keepToken } from "./data/api.js";
import { Colours } from "./data/colours.js";
import { Connection } from "./data/connection.js";
import { Store } from "./data/store.js";
import { clock, duration, shown } from "./data/text.js";
import "./parts/long_table.js";
import { fillChanges, showChanges } from "./views/changes.js";
import { fillCluster, showCluster } from "./views/cluster.js";
import { fillFuture, showFuture } from "./views/future.js";
import { fillGang, showGang } from "./views/gang.js";
import { fillQueues, showQueues } from "./views/queues.js";
import { helpIsOpen, keysAreOn, openHelp, renderHelp } from "./views/help.js";
import { showSignIn } from "./views/sign_in.js";
import { fillWaiting, showWaiting } from "./views/waiting.js";
import { html, nothing, render } from "./vendor/lit-html.js";

const VIEWS = {
  cluster: { title: "Cluster", show: showCluster, fill: fillCluster },
  queues: { title: "Queues", show: showQueues, fill: fillQueues },
  waiting: { title: "Waits", show: showWaiting, fill: fillWaiting },
  future: { title: "Future", show: showFuture, fill: fillFuture },
  changes: { title: "Changes", show: showChanges, fill: fillChanges },
  gang: { title: "Gang", show: showGang, fill: fillGang, hidden: true },
};
const SHOWN = Object.keys(VIEWS).filter((each) => !VIEWS[each].hidden);
const THEMES = ["auto", "dark", "light"];
const FRAME = 200;

/** What views are given: data, the address, and the means to ask for another one. */
export class Page {
  constructor() {
    this.store = new Store();
    this.connection = new Connection(this.store);
    this.remembered = new Map();
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.drawn = 0;
  }

  /** Begins, and never ends. */
  start() {
    takeToken();
    this.setTheme(localStorage.getItem("gpusched.theme") ?? "auto");
    this.store.addEventListener("change", () => this.draw());
    this.connection.addEventListener("state", () => this.draw());
    this.dark.addEventListener("change", () => this.setTheme(this.theme));
    window.addEventListener("hashchange", () => this.#go());
    window.addEventListener("keydown", (event) => this.#key(event));
    renderHelp();
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      document.querySelector("#main").focus();
    });
    setInterval(() => this.draw(), 5000);
    this.#go();
    return this.connection.run();
  }

  /** Draws soon, and at most five times a second. */
  draw() {
    if (this.waits) return;
    this.waits = setTimeout(() => {
      this.waits = 0;
      this.drawn = performance.now();
      this.#drawNow();
    }, Math.max(0, FRAME - (performance.now() - this.drawn)));
  }

  /**
   * Change the address: what is empty leaves it.
   * @param {Record<string, string>} change
   */
  ask(change) {
    const query = Object.fromEntries(Object.entries({ ...this.query, ...change }).filter(([, value]) => value));
    const text = new URLSearchParams(query).toString();
    const path = [this.view, ...this.path].map(encodeURIComponent).join("/");
    history.replaceState(null, "", `#/${path}${text && `?${text}`}`);
    this.query = query;
    this.#drawNow();
  }

  /**
   * @param {string} selector
   * @returns {any}
   */
  find(selector) {
    return document.querySelector(`#main ${selector}`);
  }

  /**
   * The answer of the last time, where the key is the same.
   * @param {string} key
   * @param {() => any} make
   */
  remember(key, make) {
    if (!this.remembered.has(key)) {
      this.remembered.clear();
      this.remembered.set(key, make());
    }
    return this.remembered.get(key);
  }

  /** @param {string} theme auto, dark or light */
  setTheme(theme) {
    this.theme = THEMES.includes(theme) ? theme : "auto";
    localStorage.setItem("gpusched.theme", this.theme);
    document.documentElement.dataset.theme = this.theme;
    this.colours = new Colours(this.theme === "dark" || (this.theme === "auto" && this.dark.matches));
    document.documentElement.dataset.shade = this.colours.dark ? "dark" : "light";
    this.draw();
  }

  #go() {
    const [, path = "", text = ""] = /^#\/?([^?]*)\??(.*)$/.exec(window.location.hash) ?? [];
    const [view, ...rest] = path.split("/").map(decode);
    const known = Object.hasOwn(VIEWS, view) && (view !== "gang" || rest.length === 3);
    const moved = this.view !== undefined;
    this.view = known ? view : "cluster";
    this.path = known ? rest : [];
    this.query = Object.fromEntries(new URLSearchParams(text));
    this.#drawNow();
    if (!moved) return;
    window.scrollTo(0, 0);
    this.find("h1")?.focus();
  }

  #drawNow() {
    const { phase } = this.connection.state;
    this.colours.learnQueues(this.store.queues.keys());
    const view = VIEWS[this.view];
    const called = this.view === "gang" ? shown(this.path[2]) : view.title;
    document.title = `${called} \u00b7 gpusched`;
    document.body.dataset.phase = phase;
    render(this.#top(), document.querySelector("#top"));
    render(this.#bottom(), document.querySelector("#bottom"));
    const main = document.querySelector("#main");
    if (!this.cleared) main.replaceChildren();
    this.cleared = true;
    if (phase === "refused") {
      const first = !main.querySelector(".sign-in");
      render(showSignIn(this), main);
      if (first) main.querySelector("input").focus();
      return;
    }
    render(view.show(this), main);
    view.fill(this);
  }

  #top() {
    const { about } = this.store;
    return html`<div class="head">
        <a class="brand" href="#/cluster"><img src="page/icon.svg" alt="" width="24" height="24">gpusched</a>
        <nav aria-label="Views"><ul>${SHOWN.map(
          (each) => html`<li><a href=${`#/${each}`} aria-current=${this.view === each ? "page" : nothing}>${VIEWS[each].title}</a></li>`,
        )}</ul></nav>
        <div class="tools">
          ${this.#connected()}
          <label class="theme"><span class="visually-hidden">Colours of the page</span>
            <select @change=${(event) => this.setTheme(event.target.value)}>
              ${THEMES.map((each) => html`<option value=${each} ?selected=${each === this.theme}>${each}</option>`)}
            </select></label>
          ${hasToken() ? html`<button type="button" @click=${() => this.connection.signIn("")}>Sign out</button>` : nothing}
        </div>
      </div>
      ${this.#lost()}
      ${about && about.leading === false && about.source !== "api" ? html`<p class="notice">This daemon stands by: another one decides.</p>` : nothing}
      ${about?.source === "api" ? html`<p class="notice">No daemon was found: this is read from the API server, without reasons of the daemon.</p>` : nothing}`;
  }

  #connected() {
    const { phase } = this.connection.state;
    const words = { live: "live", connecting: "connecting", lost: "lost", refused: "signed out" }[phase];
    return html`<span class="phase" role="status" data-phase=${phase}><i></i>${words}</span>`;
  }

  #lost() {
    const { phase, message, heard, again } = this.connection.state;
    if (phase !== "lost") return html`<div role="alert"></div>`;
    const old = this.store.complete
      ? `What is shown is of ${clock(heard, Date.now())}, ${duration(Date.now() - heard)} ago.`
      : "Nothing was read yet.";
    const next = again > Date.now() ? `It is tried again in ${duration(again - Date.now())}.` : "";
    return html`<div role="alert"><p class="notice bad"><b>Connection lost.</b> ${message} ${old} ${next}
      <button type="button" @click=${() => this.connection.tryNow()}>Try now</button></p></div>`;
  }

  #bottom() {
    const { about } = this.store;
    const seen = !about ? "" : about.namespaces === "all" ? "all namespaces" : Array.isArray(about.namespaces) ? `${about.namespaces.length} namespaces` : "";
    return html`<p>${about ? html`gpusched ${shown(about.version)}${about.ready ? `, ${shown(about.ready)}` : ""}. You see ${seen}. ` : nothing}
      <button type="button" class="quiet" @click=${openHelp}>Keys and help</button></p>`;
  }

  #key(event) {
    const typing = event.target.closest?.("input, select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || helpIsOpen() || !keysAreOn()) return;
    const view = SHOWN[Number(event.key) - 1];
    if (view) window.location.hash = `#/${view}`;
    else if (event.key === "?") openHelp();
    else if (event.key === "t") this.setTheme(this.colours.dark ? "light" : "dark");
    else if (event.key === "/" && this.find("[data-find]")) this.find("[data-find]").focus();
    else return;
    event.preventDefault();
  }
}

/** A token behind the address, as `gpusched console` opens the page, goes from there into this tab. */
function takeToken() {
  const token = /^#token=([^&]+)$/.exec(window.location.hash)?.[1];
  if (!token) return;
  keepToken(decode(token));
  history.replaceState(null, "", "#/cluster");
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

new Page().start();
