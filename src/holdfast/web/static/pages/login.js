/** The way in: a token. */
import { html, useState } from '../lib.js';
import { login } from '../session.js';
import { ErrorState } from '../components/basics.js';

export default function Login() {
  const [token, setToken] = useState('');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await login(token.trim());
    } catch (problem) {
      setError(problem.status === 401 ? { title: 'This token is not known', detail: 'It may have been revoked or have expired.' } : problem);
      setBusy(false);
    }
  };
  return html`<main class="login"><form class="login-card" onSubmit=${enter}>
    <img src=${new URL('../logo.svg', import.meta.url).href} alt="" width="52" height="52" />
    <h1>Holdfast</h1>
    <p class="faint">Durable background jobs.</p>
    ${error && html`<${ErrorState} error=${error} compact />`}
    <label class="field"><span>Access token</span>
      <input type="password" name="token" autocomplete="current-password" required autofocus spellcheck="false" value=${token} onInput=${(event) => setToken(event.target.value)} /></label>
    <button class="button button-primary" disabled=${busy || !token.trim()} aria-busy=${busy}>Log in</button>
    <p class="faint login-hint">The first start of <code>holdfast web</code> prints a token; <code>holdfast tokens create --app MODULE:APP --name YOU --role admin</code> makes others.</p>
  </form></main>`;
}
