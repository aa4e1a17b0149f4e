/** Questions to `/v1` of the server that this page came from: one answer, all pages, changes. */

const KEPT_AS = "gpusched.token";
const PAGE = 1000;

/** What the server did not answer, with its sentence. */
export class Refusal extends Error {
  /**
   * @param {number} status of HTTP
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * The token of this tab; it is forgotten with the tab.
 * @param {string} token
 */
export function keepToken(token) {
  if (token) sessionStorage.setItem(KEPT_AS, token);
  else sessionStorage.removeItem(KEPT_AS);
}

/** @returns {boolean} whether a token is kept */
export function hasToken() {
  return Boolean(sessionStorage.getItem(KEPT_AS));
}

function headers() {
  const token = sessionStorage.getItem(KEPT_AS);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function request(path, signal) {
  const url = new URL(path, document.baseURI);
  const answer = await fetch(url, { headers: headers(), signal, credentials: "same-origin", cache: "no-store" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, told.message ?? "");
}

/**
 * One answer.
 * @param {string} path such as "v1/queues"
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function ask(path, signal) {
  const answer = await request(path, signal);
  return answer.json().catch((error) => {
    throw error instanceof SyntaxError ? new Refusal(answer.status, "") : error;
  });
}

/**
 * All items of a list, page by page.
 * @param {string} path such as "v1/gangs"
 * @param {AbortSignal} signal
 * @param {(items: any[], total: number) => void} each is called with each page
 */
export async function askAll(path, signal, each) {
  let rest = "";
  do {
    const query = new URLSearchParams({ limit: String(PAGE), ...(rest && { continue: rest }) });
    // Each page tells where the next one begins.
    // oxlint-disable-next-line no-await-in-loop
    const page = await ask(`${path}?${query}`, signal);
    each(page.items, page.total);
    rest = page.continue || "";
  } while (rest);
}

/**
 * Server-sent events as they come. `EventSource` cannot send a token, so the stream is read here.
 * @param {string} path
 * @param {AbortSignal} signal
 * @param {() => void} heard is called for all that comes, comments too
 */
export async function* follow(path, signal, heard) {
  const answer = await request(path, signal);
  if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream")) throw new Refusal(answer.status, "");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    // oxlint-disable-next-line no-await-in-loop
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    text += value.replaceAll("\r", "");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = parseEvent(text.slice(0, end));
      text = text.slice(end + 2);
      if (event) yield event;
    }
  }
}

function parseEvent(block) {
  const event = { id: "", event: "message", data: "" };
  for (const line of block.split("\n")) {
    const [, field, value] = /^(id|event|data): ?(.*)$/.exec(line) ?? [];
    if (field === "data") event.data += (event.data && "\n") + value;
    else if (field) event[field] = value;
  }
  return event.data ? { ...event, data: JSON.parse(event.data) } : null;
}
