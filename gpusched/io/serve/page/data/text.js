/**
 * Texts of the page: names as they are shown, amounts, times and durations.
 *
 * Names come from whoever may create objects. They reach the page as text only, and characters
 * that would hide or turn what stands beside them are written out.
 */

/** Control characters, line separators, zero-width and direction marks, language tags. */
const UNSEEN =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/**
 * A text with each character that cannot be seen as its number.
 * @param {unknown} text of others
 * @returns {string}
 */
export function shown(text) {
  return String(text ?? "").replace(
    UNSEEN,
    (each) => `\u2039U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u203a`,
  );
}

const FACTORS = {
  m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/**
 * A quantity of Kubernetes as a number; 0 where there is none.
 * @param {string} text such as "8" or "500m"
 * @returns {number}
 */
export function amount(text) {
  const parts = /^([0-9.]+)([a-zA-Z]*)$/.exec(text || "");
  return parts ? Number(parts[1]) * (FACTORS[parts[2]] ?? 1) : 0;
}

/**
 * A number as people read it, with at most two decimals.
 * @param {number} value
 * @returns {string}
 */
export function count(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 2 });
}

/**
 * "1 gang", "2 gangs".
 * @param {number} number
 * @param {string} word in the singular
 * @returns {string}
 */
export function many(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/**
 * Milliseconds since the epoch of a time of the server; NaN where it is not known.
 * @param {string} text RFC 3339
 * @returns {number}
 */
export function moment(text) {
  return text ? Date.parse(text) : Number.NaN;
}

/**
 * A duration in its two largest units.
 * @param {number} milliseconds
 * @returns {string}
 */
export function duration(milliseconds) {
  let rest = Math.max(0, Math.round(milliseconds / 1000));
  const parts = [];
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]) {
    const number = Math.floor(rest / size);
    rest -= number * size;
    if (number || (unit === "s" && !parts.length)) parts.push(`${number} ${unit}`);
  }
  const single = parts.length === 2 && parts[1].endsWith(" s") && Number.parseInt(parts[0], 10) >= 10;
  return parts.slice(0, single ? 1 : 2).join(" ");
}

/**
 * Domains of a node, widest first; one whose name begins with that of the one around it without that part.
 * @param {any} node
 * @returns {string[]} such as "zone a", "rack 7"
 */
export function placeOf(node) {
  const domains = node.domains ?? [];
  return domains.map(({ level, name }, at) => {
    const around = at ? `${domains[at - 1].name}/` : "/";
    return `${level} ${name.startsWith(around) ? name.slice(around.length) : name}`;
  });
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short" });
const WHOLE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/**
 * The time of day, with the day where that is not today's.
 * @param {number} at milliseconds since the epoch
 * @param {number} now
 * @param {boolean} [seconds] whether they are told
 * @returns {string}
 */
export function clock(at, now, seconds = true) {
  if (!Number.isFinite(at)) return "";
  const told = (seconds ? CLOCK : HOUR).format(at);
  return DAY.format(at) === DAY.format(now) ? told : `${DAY.format(at)} ${told}`;
}

/**
 * The day of a time.
 * @param {number} at milliseconds since the epoch
 * @returns {string}
 */
export const day = (at) => DAY.format(at);

/**
 * Date, time and zone.
 * @param {number} at milliseconds since the epoch
 * @returns {string}
 */
export function wholeTime(at) {
  return Number.isFinite(at) ? WHOLE.format(at) : "";
}

/**
 * What a gang is called everywhere: NAMESPACE/KIND/NAME.
 * @param {{metadata: {namespace: string, name: string}, gangKind: string}} gang
 * @returns {string}
 */
export function keyOf(gang) {
  return `${gang.metadata.namespace}/${gang.gangKind}/${gang.metadata.name}`;
}

/**
 * Where a gang's story is on this page.
 * @param {string} namespace
 * @param {string} kind
 * @param {string} name
 * @returns {string}
 */
export function gangLink(namespace, kind, name) {
  return `#/gang/${[namespace, kind, name].map(encodeURIComponent).join("/")}`;
}
