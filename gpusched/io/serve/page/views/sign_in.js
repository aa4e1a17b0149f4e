/** Asks for a token where the server knows none. */

import { html } from "../vendor/lit-html.js";

/** @param {import("../main.js").Page} page */
export function showSignIn(page) {
  const submit = (event) => {
    event.preventDefault();
    page.connection.signIn(new FormData(event.target).get("token").trim());
  };
  return html`<form class="card sign-in" @submit=${submit}>
    <h1 tabindex="-1">Sign in</h1>
    <p role="alert">${page.connection.state.message}</p>
    <p>You see what Kubernetes lets you list: gangs of namespaces whose pods you may list, nodes and queues. A token of yours comes from</p>
    <pre>kubectl create token ACCOUNT -n NAMESPACE</pre>
    <label class="field wide"><span>Token</span><input name="token" type="password" required autocomplete="off" spellcheck="false"></label>
    <p class="soft">It is kept in this tab alone, and sent to this server only.</p>
    <button class="main" type="submit">Sign in</button>
  </form>`;
}
