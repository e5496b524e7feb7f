import { html } from '../lib.js';
import { PageHead } from '../components/basics.js';
export default function Page() { return html`<${PageHead} title="Soon" />`; }
