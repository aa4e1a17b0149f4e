/** `<cluster-map>`: every GPU of the cluster, with whoever holds it, by pointer and by keys. */

import { Colours } from "../data/colours.js";
import { amount, gangLink, keyOf, many, placeOf, shown } from "../data/text.js";
import { textUnit } from "./bits.js";
import { groupNodes, layOutWithin, slotAt, slotPlace, slotsOf } from "./map_layout.js";

const WALK = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const HELP = "Arrow keys walk from GPU to GPU, Page Up and Page Down from node to node, Enter opens the gang there.";

/** Draws what `show` was given last. */
export class ClusterMap extends HTMLElement {
  connectedCallback() {
    if (this.canvas) return;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "map");
    this.told = document.createElement("output");
    this.told.className = "map-told";
    this.told.setAttribute("aria-live", "polite");
    this.told.textContent = HELP;
    this.append(this.canvas, this.told);
    this.at = null;
    this.colours = new Colours(false);
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#choose(null));
    this.canvas.addEventListener("click", (event) => (this.#point(event), this.#open()));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.canvas.addEventListener("focus", () => this.at || this.#choose({ tile: 0, slot: 0 }));
    this.canvas.addEventListener("blur", () => this.#choose(null));
    this.sizes = new ResizeObserver(() => this.#fit());
    this.sizes.observe(this);
  }

  disconnectedCallback() {
    this.sizes.disconnect();
    this.canvas.remove();
    this.told.remove();
    this.canvas = null;
  }

  /**
   * @param {object} options
   * @param {import("../data/store.js").Store} options.store
   * @param {string} options.by queue, gang or free
   * @param {string} [options.gang] key of the one that stands out
   * @param {string[]} [options.framed] names of nodes with a frame around them
   * @param {Iterable<any>} [options.nodes] those that are drawn, all unless told
   * @param {number} [options.height] that it should fit into
   */
  show(options) {
    const { store, nodes } = options;
    this.options = options;
    const version = `${store.versions.nodes} ${nodes ? [...nodes].length : "all"} ${options.height}`;
    if (this.version !== version && !(this.plan && this.#refresh(nodes ? [...nodes] : store.nodes))) {
      this.sections = groupNodes(nodes ?? store.nodes.values());
      this.planned = null;
    }
    this.version = version;
    const { gpus, free } = store.figures();
    this.canvas?.setAttribute(
      "aria-label",
      `Map of ${many(store.nodes.size, "node")} with ${many(gpus, "GPU")}, ${free} free. ${HELP}`,
    );
    this.#fit();
  }

  /** Nodes as they are now at the places they have; false where these must be found anew. */
  #refresh(nodes) {
    const { tiles } = this.plan;
    if (tiles.length !== (nodes.size ?? nodes.length)) return false;
    const known = nodes instanceof Map ? nodes : new Map(nodes.map((each) => [each.metadata.name, each]));
    const fresh = tiles.map((tile) => known.get(tile.node.metadata.name));
    if (fresh.some((node, at) => !node || !samePlace(node, tiles[at].node))) return false;
    for (const [at, node] of fresh.entries()) tiles[at].node = node;
    this.sections = null;
    return true;
  }

  #fit() {
    if (!this.options || !this.canvas || !this.clientWidth) return;
    const width = this.clientWidth;
    const height = this.options.height ?? Math.max(320, window.innerHeight - 340);
    if (!this.planned || this.planned !== `${width} ${height}`) {
      this.planned = `${width} ${height}`;
      this.sections ??= groupNodes(this.options.nodes ?? this.options.store.nodes.values());
      this.unit = textUnit();
      this.plan = layOutWithin(this.sections, width, height, this.unit);
      const scale = Math.min(2, window.devicePixelRatio || 1);
      this.canvas.width = width * scale;
      this.canvas.height = Math.max(1, this.plan.height) * scale;
      this.canvas.style.height = `${Math.max(1, this.plan.height)}px`;
      this.scale = scale;
      if (this.at && this.at.tile >= this.plan.tiles.length) this.at = null;
    }
    this.#drawSoon();
  }

  #drawSoon() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      if (this.canvas && this.plan) this.#draw();
    });
  }

  /** The gang that stands out: that of the view, or the one that is pointed at. */
  #marked() {
    const there = this.at && this.plan.tiles[this.at.tile];
    const holder = there && slotsOf(there.node)[this.at.slot]?.holders?.find((each) => !each.hidden);
    return holder ? holderKey(holder) : this.options.gang;
  }

  #draw() {
    const { plan, canvas, options } = this;
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(this);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.colours = new Colours(colour("--dark") === "1");
    this.colours.learnQueues(options.store.queues.keys());
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.textBaseline = "top";
    for (const each of plan.frames) {
      pen.fillStyle = colour("--frame");
      pen.beginPath();
      pen.roundRect(each.x, each.y, each.width, each.height, 6);
      pen.fill();
    }
    for (const each of plan.titles) {
      pen.font = `${each.strong ? "600 " : ""}${(each.strong ? 13 : 11) * this.unit}px ${style.fontFamily}`;
      pen.fillStyle = colour(each.strong ? "--ink" : "--soft");
      pen.fillText(shorten(pen, shown(each.text), each.width), each.x, each.y + 3);
    }
    this.#drawTiles(pen, colour);
    this.#drawCursor(pen, colour);
  }

  #drawTiles(pen, colour) {
    const { plan } = this;
    const marked = this.#marked();
    const strokes = { tile: colour("--tile"), bad: colour("--bad"), free: colour("--free") };
    const layers = new Map();
    // By depth, then by colour: nodes, what is free on them, who holds the rest.
    const paint = (depth, fill, x, y, width, height, faint) => {
      const key = `${depth}${faint ? 1 : 0}${fill}`;
      if (!layers.has(key)) layers.set(key, []);
      layers.get(key).push(x, y, width, height);
    };
    for (const tile of plan.tiles) {
      const ready = tile.node.state === "Ready";
      paint(0, ready ? strokes.tile : strokes.bad, tile.x, tile.y, tile.width, tile.height, false);
      for (const [at, slot] of slotsOf(tile.node).entries()) {
        const { x, y } = slotPlace(tile, at, plan.cell);
        this.#paintSlot(paint, slot, { x, y, free: strokes.free, marked });
      }
    }
    for (const key of [...layers.keys()].toSorted()) {
      const boxes = layers.get(key);
      pen.globalAlpha = key[1] === "1" ? 0.28 : 1;
      pen.fillStyle = key.slice(2);
      for (let at = 0; at < boxes.length; at += 4) pen.fillRect(boxes[at], boxes[at + 1], boxes[at + 2], boxes[at + 3]);
    }
    pen.globalAlpha = 1;
    const framed = new Set(this.options.framed);
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    for (const tile of plan.tiles)
      if (framed.has(tile.node.metadata.name)) pen.strokeRect(tile.x, tile.y, tile.width, tile.height);
  }

  #paintSlot(paint, slot, { x, y, free, marked }) {
    const { cell } = this.plan;
    const left = Math.min(1, amount(slot.free));
    const holders = slot.holders ?? [];
    paint(1, free, x, y, cell, cell, false);
    const held = 1 - left;
    if (held <= 0 && !holders.length) return;
    const parts = holders.length || 1;
    let top = y;
    for (let at = 0; at < parts; at += 1) {
      const holder = holders[at];
      const size = Math.max(1, (cell * (held || 1)) / parts);
      const own = holder && !holder.hidden;
      const key = own ? holderKey(holder) : "";
      paint(2, this.#fill(own ? key : ""), x, top, cell, size, Boolean(marked) && marked !== key);
      top += size;
    }
  }

  #fill(key) {
    const { by, store } = this.options;
    if (!key) return this.colours.ofNobody();
    if (by === "gang") return this.colours.ofGang(key);
    if (by === "free") return this.colours.ofNobody();
    const queue = store.gangs.get(key)?.queue;
    return this.colours.ofQueue(queue);
  }

  #drawCursor(pen, colour) {
    if (!this.at) return;
    const tile = this.plan.tiles[this.at.tile];
    if (!tile) return;
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    pen.strokeRect(tile.x - 1, tile.y - 1, tile.width + 2, tile.height + 2);
    if (this.at.slot < 0) return;
    const { x, y } = slotPlace(tile, this.at.slot, this.plan.cell);
    pen.strokeStyle = colour("--ink");
    pen.strokeRect(x - 1, y - 1, this.plan.cell + 2, this.plan.cell + 2);
  }

  #point(event) {
    if (!this.plan) return;
    const box = this.canvas.getBoundingClientRect();
    this.#choose(slotAt(this.plan, event.clientX - box.left, event.clientY - box.top));
  }

  #choose(at) {
    if (at?.tile === this.at?.tile && at?.slot === this.at?.slot) return;
    this.at = at && this.plan?.tiles[at.tile] ? at : null;
    this.told.textContent = this.at ? describeSlot(this.plan.tiles[this.at.tile].node, this.at.slot, this.options.store) : HELP;
    this.canvas.style.cursor = this.#holder() ? "pointer" : "default";
    this.#drawSoon();
  }

  #holder() {
    if (!this.at) return null;
    return slotsOf(this.plan.tiles[this.at.tile].node)[this.at.slot]?.holders?.find((each) => !each.hidden);
  }

  #open() {
    const holder = this.#holder();
    if (holder) window.location.hash = gangLink(holder.namespace, holder.kind, holder.name);
  }

  #key(event) {
    if (!this.plan?.tiles.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.at ?? { tile: 0, slot: 0 };
    if (event.key in WALK) this.#choose(this.#step(at, ...WALK[event.key]));
    else if (event.key === "PageDown") this.#choose({ tile: Math.min(this.plan.tiles.length - 1, at.tile + 1), slot: 0 });
    else if (event.key === "PageUp") this.#choose({ tile: Math.max(0, at.tile - 1), slot: 0 });
    else if (event.key === "Home") this.#choose({ tile: 0, slot: 0 });
    else if (event.key === "End") this.#choose({ tile: this.plan.tiles.length - 1, slot: 0 });
    else if (event.key === "Enter") this.#open();
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.#reveal();
  }

  /** The next slot in a direction: within the node, else of the nearest node there. */
  #step(at, right, down) {
    const tile = this.plan.tiles[at.tile];
    const slots = slotsOf(tile.node).length;
    const column = (at.slot % tile.inRow) + right;
    const slot = at.slot + right + down * tile.inRow;
    if (at.slot >= 0 && column >= 0 && column < tile.inRow && slot >= 0 && slot < slots) return { tile: at.tile, slot };
    const x = tile.x + tile.width / 2;
    const y = tile.y + tile.height / 2;
    let best = null;
    let nearest = Infinity;
    for (const [number, other] of this.plan.tiles.entries()) {
      const dx = other.x + other.width / 2 - x;
      const dy = other.y + other.height / 2 - y;
      const along = right ? dx * right : dy * down;
      const far = along + 4 * Math.abs(right ? dy : dx);
      if (along > 1 && far < nearest) [nearest, best] = [far, number];
    }
    return best === null ? at : { tile: best, slot: 0 };
  }

  #reveal() {
    const tile = this.at && this.plan.tiles[this.at.tile];
    if (!tile) return;
    const box = this.canvas.getBoundingClientRect();
    const top = box.top + tile.y;
    if (top < 80) window.scrollBy(0, top - 120);
    else if (top + tile.height > window.innerHeight - 60) window.scrollBy(0, top + tile.height - window.innerHeight + 120);
  }
}

/**
 * @param {{namespace: string, kind: string, name: string}} holder
 * @returns {string}
 */
export function holderKey(holder) {
  return keyOf({ metadata: holder, gangKind: holder.kind });
}

/**
 * What is told of a slot: the node, its state and place, and who holds what of it.
 * @param {any} node
 * @param {number} at
 * @param {import("../data/store.js").Store} store
 * @returns {string}
 */
export function describeSlot(node, at, store) {
  const place = placeOf(node).join(", ");
  const state = node.state === "Ready" ? "" : `, ${node.state}`;
  const type = node.gpuType ? `, ${node.gpuType}` : "";
  const head = `Node ${node.metadata.name}${state}${type}${place ? `, ${place}` : ""}`;
  const slot = slotsOf(node)[at];
  if (!slot) return shown(`${head}: ${node.freeGpus} of ${many(amount(node.gpus), "GPU")} free`);
  const holders = (slot.holders ?? []).map((each) => describeHolder(each, store));
  const left = amount(slot.free);
  const held = holders.length ? `held by ${holders.join(" and ")}` : "held by pods that are no gang of ours";
  const rest = left && holders.length ? `, ${Math.round(left * 100)} % free` : "";
  return shown(`${head}: GPU ${slot.index} is ${left >= 1 ? "free" : held + rest}`);
}

function describeHolder(holder, store) {
  if (holder.hidden) return "a gang that you may not see";
  const queue = store.gangs.get(holderKey(holder))?.queue;
  const share = holder.share && holder.share !== "1" ? ` (${holder.share} of it)` : "";
  return `${holder.kind} ${holder.namespace}/${holder.name}${share}${queue ? ` of queue ${queue}` : ""}`;
}

function samePlace(node, other) {
  const place = (each) => placeOf(each).join(" ");
  return node === other || (slotsOf(node).length === slotsOf(other).length && place(node) === place(other));
}

function shorten(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let short = text.slice(0, Math.max(1, Math.floor(width / 5)));
  while (short.length > 1 && pen.measureText(`${short}\u2026`).width > width) short = short.slice(0, -1);
  return `${short}\u2026`;
}

customElements.define("cluster-map", ClusterMap);
