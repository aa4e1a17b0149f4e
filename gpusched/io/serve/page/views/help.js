/** What keys do, over the page; and whether single ones do anything, which this browser remembers. */

import { html, render } from "../vendor/lit-html.js";

const KEPT_AS = "gpusched.keys";
const KEYS = [
  [["1", "to", "5"], "open Cluster, Queues, Waits, Future, Changes"],
  [["/"], "go to the field for text"],
  [["t"], "change dark and light"],
  [["?"], "open this help"],
];
const MAP = [
  [["\u2190", "\u2191", "\u2192", "\u2193"], "from GPU to GPU"],
  [["Page Up", "Page Down"], "from node to node"],
  [["Home", "End"], "to the first and the last node"],
  [["Enter"], "open the gang that holds the GPU"],
];
const dialog = () => /** @type {HTMLDialogElement} */ (document.querySelector("#help"));

/** @returns {boolean} whether single keys do anything outside of fields and maps */
export const keysAreOn = () => localStorage.getItem(KEPT_AS) !== "off";

/** @returns {boolean} */
export const helpIsOpen = () => dialog().open;

/** Shows it; Escape and its button close it, and the focus is again where it was. */
export function openHelp() {
  renderHelp();
  dialog().showModal();
}

/** Makes its content. */
export function renderHelp() {
  const turn = (event) => {
    if (event.target.checked) localStorage.removeItem(KEPT_AS);
    else localStorage.setItem(KEPT_AS, "off");
  };
  const rows = (keys) =>
    keys.map(([names, words]) => html`<dt>${names.map((each) => (each === "to" ? " to " : html`<kbd>${each}</kbd> `))}</dt><dd>${words}</dd>`);
  render(
    html`<h2 id="help-title">Keys</h2>
      <dl>${rows(KEYS)}</dl>
      <label class="switch"><input type="checkbox" .checked=${keysAreOn()} @change=${turn}>Single keys open views and do the above; this browser remembers it</label>
      <h2>On a map that has the focus</h2>
      <dl>${rows(MAP)}</dl>
      <p>What words mean and who sees what is told in the documentation of gpusched: docs/console.md and docs/glossary.md.</p>
      <button class="main" type="button" autofocus @click=${() => dialog().close()}>Close</button>`,
    dialog(),
  );
}
