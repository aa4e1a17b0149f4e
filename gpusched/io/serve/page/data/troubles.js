/** What the page says where the server does not answer: one sentence that tells what to do. */

import { Refusal } from "./api.js";
import { shown } from "./text.js";

const WORDS = {
  200: () => "Something in between answers in the place of the server, such as the log-in page of a proxy: reload this page.",
  400: () => "The server does not understand this page: reload it, it may be of an older version.",
  401: (_, known) =>
    known
      ? "This token is not known here: it has ended, or it is of another cluster. Make a new one."
      : "The server wants to know who you are.",
  403: () =>
    "You may not read this: ask for the right to list pods, or open the address again that gpusched console printed.",
  404: () => "The server has no such answer: reload the page, the daemon may be of another version.",
  429: () => "More rights are to be checked at once than the API server is asked for: wait, and close pages that nobody reads.",
  502: () => "Something between this page and the daemon has no answer: see whether the daemon runs.",
  503: (told) => `The daemon cannot answer now: ${told || "it starts, or cannot be reached"}. If that stays so, its log says why.`,
  504: () => "Something between this page and the daemon waits too long for it: see whether the daemon runs.",
};

/** The stream of changes ended, though nothing was refused. */
export const ENDED = "The server ended the connection, as it does when the daemon is restarted or another one takes over.";
/** The stream says nothing, not even that nothing is new. */
export const SILENT = "The server has said nothing for 40 seconds: see whether your network, or what passes the connection on, holds it up.";
const UNREACHABLE = "The server cannot be reached: see whether the daemon runs, and whether your network or kubectl port-forward still leads to it.";

/**
 * @param {unknown} error of a question
 * @param {boolean} [known] whether a token was sent
 * @returns {string} one sentence
 */
export function sayTrouble(error, known = false) {
  if (!(error instanceof Refusal)) return UNREACHABLE;
  const told = shown(error.message).replace(/[.\s]+$/u, "");
  const words = WORDS[error.status] ?? (() => `The server answers ${error.status}${told && `: ${told}`}: its log says more.`);
  return words(told, known);
}
