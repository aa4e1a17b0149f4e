/** Where nodes and domains are drawn: widest domains below each other, the narrowest in rows. */

import { amount, placeOf } from "../data/text.js";

const GAP = 2;
const PAD = 6;
const TITLE = 18;
/** Columns that are tried on both sides of the wished number, so that few places stay empty. */
const NEAR = 2;
const SLOTS_A_ROW = 4;

/**
 * Slots of a node; where the server does not tell them, as many as it has GPUs.
 * @param {any} node
 * @returns {any[]}
 */
export function slotsOf(node) {
  if (node.slots?.length) return node.slots;
  const free = amount(node.freeGpus);
  return Array.from({ length: Math.min(64, Math.ceil(amount(node.gpus))) }, (_, index) => ({
    index,
    island: 0,
    free: index < free ? "1" : "0",
    holders: [],
  }));
}

/**
 * Nodes in the groups of their narrowest domain, and these in sections of all wider ones.
 * @param {Iterable<any>} nodes
 * @returns {{title: string, groups: {title: string, nodes: any[]}[]}[]}
 */
export function groupNodes(nodes) {
  const sections = new Map();
  for (const node of nodes) {
    const domains = placeOf(node);
    const wide = domains.slice(0, -1).join(" \u203a ");
    const title = domains.at(-1) ?? "";
    if (!sections.has(wide)) sections.set(wide, new Map());
    const groups = sections.get(wide);
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(node);
  }
  const order = new Intl.Collator("en", { numeric: true });
  const byTitle = (a, b) => order.compare(a[0], b[0]);
  return [...sections].toSorted(byTitle).map(([title, groups]) => ({
    title,
    groups: [...groups].toSorted(byTitle).map(([name, found]) => ({
      title: name,
      nodes: found.toSorted((a, b) => order.compare(a.metadata.name, b.metadata.name)),
    })),
  }));
}

/**
 * Boxes of all domains and nodes at one size of a GPU.
 * @param {ReturnType<typeof groupNodes>} sections
 * @param {number} width of the picture
 * @param {number} cell size of a GPU, in pixels
 * @param {number} unit how large text is, 1 where it is as usual
 * @returns {{height: number, titles: any[], frames: any[], tiles: any[], cell: number}}
 */
export function layOut(sections, width, cell, unit) {
  const titles = [];
  const frames = [];
  const tiles = [];
  let most = 1;
  for (const section of sections)
    for (const group of section.groups)
      for (const node of group.nodes) most = Math.max(most, slotsOf(node).length);
  const inRow = Math.min(SLOTS_A_ROW, most);
  const lines = Math.ceil(most / inRow);
  const gap = cell > 5 ? GAP : 1;
  const tileWidth = inRow * (cell + gap) + gap + 2;
  const tileHeight = lines * (cell + gap) + gap + 2;
  let y = 0;
  for (const section of sections) {
    if (section.title) {
      titles.push({ text: section.title, x: 0, y, width, strong: true });
      y += TITLE * unit + 4;
    }
    let x = 0;
    let deepest = 0;
    for (const group of section.groups) {
      const fits = Math.max(1, Math.floor((width - PAD * 2) / (tileWidth + gap)));
      const wished = Math.ceil(Math.sqrt((group.nodes.length * tileHeight * 1.8) / tileWidth));
      const alone = sections.length === 1 && section.groups.length === 1;
      const across = alone ? Math.min(fits, group.nodes.length) : evenly(group.nodes.length, wished, fits);
      const down = Math.ceil(group.nodes.length / across);
      const top = group.title ? TITLE * unit : PAD;
      const wide = Math.max(across * (tileWidth + gap) - gap + PAD * 2, group.title ? 64 * unit : 0);
      const deep = down * (tileHeight + gap) - gap + top + PAD;
      if (x && x + wide > width) {
        x = 0;
        y += deepest + PAD;
        deepest = 0;
      }
      frames.push({ x, y, width: wide, height: deep });
      if (group.title) titles.push({ text: group.title, x: x + PAD, y: y + 1, width: wide - PAD * 2 });
      for (const [at, node] of group.nodes.entries()) {
        tiles.push({
          node,
          x: x + PAD + (at % across) * (tileWidth + gap),
          y: y + top + Math.floor(at / across) * (tileHeight + gap),
          width: tileWidth,
          height: tileHeight,
          inRow,
          gap,
        });
      }
      x += wide + PAD;
      deepest = Math.max(deepest, deep);
    }
    y += deepest + PAD + 4;
  }
  return { height: Math.ceil(y), titles, frames, tiles, cell };
}

/** The number of columns near the wished one that leaves the fewest places empty. */
function evenly(nodes, wished, fits) {
  let best = Math.min(wished, fits, nodes);
  const empty = (columns) => Math.ceil(nodes / columns) * columns - nodes;
  for (let columns = Math.max(1, wished - NEAR); columns <= Math.min(wished + NEAR, fits, nodes); columns += 1) {
    const less = empty(columns) - empty(best);
    if (less < 0 || (less === 0 && Math.abs(columns - wished) < Math.abs(best - wished))) best = columns;
  }
  return best;
}

/**
 * The largest size of GPUs with which all fits into a height, and not below what can be seen.
 * @param {ReturnType<typeof groupNodes>} sections
 * @param {number} width
 * @param {number} height
 * @param {number} unit how large text is, 1 where it is as usual
 * @returns {ReturnType<typeof layOut>}
 */
export function layOutWithin(sections, width, height, unit) {
  let found = layOut(sections, width, 3, unit);
  for (const cell of [4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 24, 28, 32, 38, 44, 50, 58, 66]) {
    const next = layOut(sections, width, cell, unit);
    const widest = next.frames.reduce((most, each) => Math.max(most, each.width), 0);
    if (next.height > height || widest > width) break;
    found = next;
  }
  return found;
}

/**
 * Where a slot is drawn.
 * @param {any} tile
 * @param {number} at its place among the slots of the node
 * @param {number} cell
 * @returns {{x: number, y: number}}
 */
export function slotPlace(tile, at, cell) {
  const { gap, inRow } = tile;
  return {
    x: tile.x + 1 + gap + (at % inRow) * (cell + gap),
    y: tile.y + 1 + gap + Math.floor(at / inRow) * (cell + gap),
  };
}

/**
 * The slot at a point, and its node.
 * @param {ReturnType<typeof layOut>} plan
 * @param {number} x
 * @param {number} y
 * @returns {{tile: number, slot: number} | null} slot is -1 beside all slots of the node
 */
export function slotAt(plan, x, y) {
  for (const [number, tile] of plan.tiles.entries()) {
    if (x < tile.x || y < tile.y || x >= tile.x + tile.width || y >= tile.y + tile.height) continue;
    const size = plan.cell + tile.gap;
    const column = Math.min(tile.inRow - 1, Math.max(0, Math.floor((x - tile.x - 1 - tile.gap / 2) / size)));
    const line = Math.max(0, Math.floor((y - tile.y - 1 - tile.gap / 2) / size));
    const slot = line * tile.inRow + column;
    return { tile: number, slot: slot < slotsOf(tile.node).length ? slot : -1 };
  }
  return null;
}
