/** Colours of queues and gangs: the same name has the same colour in all views. */

const HUES = [212, 28, 150, 282, 48, 340, 178, 4, 246, 96];

/** Colours for dark or light, whichever is shown. */
export class Colours {
  /** @param {boolean} dark */
  constructor(dark) {
    this.dark = dark;
    this.light = dark ? 62 : 44;
  }

  /**
   * Queues by their place among all names, so that the first ten differ most.
   * @param {Iterable<string>} names
   */
  learnQueues(names) {
    this.queues = new Map([...names].toSorted().map((name, at) => [name, at]));
  }

  /**
   * @param {string} name
   * @returns {string}
   */
  ofQueue(name) {
    const at = this.queues?.get(name);
    if (at === undefined) return this.ofNobody();
    const turn = Math.floor(at / HUES.length);
    const hue = (HUES[at % HUES.length] + turn * 17) % 360;
    return `hsl(${hue} ${this.dark ? 68 : 72}% ${this.light + (turn % 2 ? 10 : 0)}%)`;
  }

  /**
   * @param {string} key
   * @returns {string}
   */
  ofGang(key) {
    let hash = 2166136261;
    for (let at = 0; at < key.length; at += 1) hash = Math.imul(hash ^ key.charCodeAt(at), 16777619);
    const hue = (hash >>> 0) % 360;
    return `hsl(${hue} ${50 + ((hash >>> 9) % 3) * 12}% ${this.light - 6 + ((hash >>> 13) % 4) * 5}%)`;
  }

  /** @returns {string} for what is held by somebody who is not shown */
  ofNobody() {
    return this.dark ? "hsl(215 9% 48%)" : "hsl(215 8% 58%)";
  }
}
