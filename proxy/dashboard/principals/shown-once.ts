import type { DashboardContext } from '../frame/dashboard.ts'
import { exactHtml, type HtmlFragment, html, joinHtml, pathOf } from '../frame/parts.ts'
import { baseUrlOf, snippets } from '../frame/snippets.ts'

interface MintedIdentity {
  readonly cert_chain_pem: string
  readonly private_key_pem: string
}

/**
 * The folder of an identity, this once: the files that `sallyport agent` writes, one by one. A script makes one file of them,
 * out of what stands here: nobody asks the service a second time. `path`: where clients look for them, `agents/<name>`.
 */
export function identityFolder(
  dashboard: DashboardContext,
  { path, id }: { readonly path: string; readonly id: string },
  { cert_chain_pem: cert, private_key_pem: key }: MintedIdentity,
): HtmlFragment {
  const { rootPem, intermediatePem } = dashboard.context.authority
  const files = [
    ['agent.key', key],
    ['agent.crt', cert],
    ['org-ca.crt', rootPem],
    ['ca-chain.pem', intermediatePem + rootPem],
    ['gateway.json', `${JSON.stringify({ url: baseUrlOf(dashboard), agent_id: id })}\n`],
  ] as const
  return html`<p class="notice">This page shows the private key once. The service keeps no copy of it.</p>
<section class="card" data-folder="${path}"><h2>Save these in ${path}/</h2>${joinHtml(
    files.map(
      ([name, text]) => html`
<h3>${name}</h3><pre class="copy" tabindex="0" data-file="${name}">${exactHtml(text)}</pre>`,
    ),
  )}
<p class="faint"><code>org-ca.crt</code> is <a href="/pki/ca.crt" download="org-ca.crt">the CA that clients and browsers know the gateway by</a>.</p>
<p class="faint">For nobody else to read: <code class="copy" tabindex="0">chmod 600 ${path}/agent.key</code>. The sidecar starts with no other.</p>
<details><summary>All of them by one paste into a terminal</summary><pre class="copy" tabindex="0" id="pasted">${exactHtml(pasted(path, files))}</pre></details></section>`
}

/** What to tell clients; waits for the first call. */
export const connectCard = (
  dashboard: DashboardContext,
  id: string,
  name: string,
): HtmlFragment => html`<section class="card"><h2>Connect</h2>
${snippets(dashboard, name)}
<div id="first-call" data-wait="${pathOf('agents', id)}/first-call"><p role="status">Waiting for the first call… <a href="${pathOf('agents', id)}/first-call">Look again</a></p></div></section>`

/** Commands that write files, none of whose lines says END alone, for their owner alone to read. */
const pasted = (path: string, files: readonly (readonly [name: string, text: string])[]): string =>
  [
    `(umask 077; mkdir -p ${path} && cd ${path}`,
    ...files.map(([name, text]) => `cat > ${name} <<'END'\n${text.trimEnd()}\nEND`),
    ')',
  ].join('\n')
