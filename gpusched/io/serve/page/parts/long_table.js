/** `<long-table>`: a table of any length, of which only the rows that are seen are made. */

import { textUnit } from "./bits.js";
import { html, nothing, render } from "../vendor/lit-html.js";

const SPARE = 6;
const NARROW = 720;

/** Draws what `show` was given last. Columns share a grid; below a width rows become cards. */
export class LongTable extends HTMLElement {
  connectedCallback() {
    this.classList.add("long-table");
    this.sizes = new ResizeObserver(() => this.#draw());
    this.sizes.observe(this);
  }

  disconnectedCallback() {
    this.sizes.disconnect();
  }

  /**
   * @param {object} options
   * @param {string} options.label what the table is of
   * @param {any[]} options.rows
   * @param {{title: string, cell: (row: any) => any, sort?: string, kind?: string, head?: any}[]} options.columns
   * @param {string} options.grid widths of the columns, as in CSS
   * @param {number} [options.tall] height of a row, in pixels where text is as usual
   * @param {number} [options.card] height of a row where the page is narrow
   * @param {string} [options.sorted] name of the order, with "-" before it where it is turned
   * @param {(sorted: string) => void} [options.sort] is called with the order that is wished
   * @param {string} [options.empty] what is told where there are no rows
   */
  show(options) {
    this.options = { tall: 44, card: 96, ...options };
    this.#draw();
  }

  #draw() {
    const { options } = this;
    if (!options) return;
    const unit = textUnit();
    const narrow = this.clientWidth > 0 && this.clientWidth < NARROW * unit;
    const tall = Math.round((narrow ? options.card : options.tall) * unit);
    const body = this.querySelector(".rows");
    const from = Math.max(0, Math.floor((body?.scrollTop ?? 0) / tall) - SPARE);
    const seen = Math.ceil((body?.clientHeight || 700) / tall) + 2 * SPARE;
    const rows = options.rows.slice(from, from + seen);
    this.classList.toggle("cards", narrow);
    this.style.setProperty("--grid", options.grid);
    this.style.setProperty("--tall", `${tall}px`);
    render(this.#table(rows, { from, tall }), this);
  }

  #table(rows, { from, tall }) {
    const { options } = this;
    const all = options.rows.length;
    return html`<div role="table" aria-label=${options.label} aria-rowcount=${all + 1} aria-colcount=${options.columns.length}>
      <div role="rowgroup" class="head">
        <div role="row" class="row" aria-rowindex="1">${options.columns.map((each) => this.#head(each))}</div>
      </div>
      <div role="rowgroup" class="rows" tabindex="0" aria-label=${`Rows of ${options.label}`} @scroll=${() => this.#draw()}>
        <div class="space" role="presentation" .style=${`height:${from * tall}px`}></div>
        ${rows.map(
          (row, at) => html`<div role="row" class="row" aria-rowindex=${from + at + 2}>
            ${options.columns.map(
              (each) => html`<div role="cell" class=${`cell ${each.kind ?? ""}`} data-title=${each.title}>${each.cell(row)}</div>`,
            )}
          </div>`,
        )}
        <div class="space" role="presentation" .style=${`height:${Math.max(0, all - from - rows.length) * tall}px`}></div>
      </div>
    </div>
    ${all ? nothing : html`<p class="empty">${options.empty ?? "Nothing to show."}</p>`}`;
  }

  #head({ title, sort, kind, head }) {
    const { sorted } = this.options;
    const up = sorted === sort;
    const order = sort && (up || sorted === `-${sort}`) ? (up ? "ascending" : "descending") : nothing;
    return html`<div role="columnheader" class=${`cell ${kind ?? ""}`} aria-sort=${order}>
      ${sort
        ? html`<button type="button" @click=${() => this.options.sort(up ? `-${sort}` : sort)}>${title}</button>`
        : (head ?? title)}
    </div>`;
  }
}

customElements.define("long-table", LongTable);
