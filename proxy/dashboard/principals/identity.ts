import { type JsonWebKey, randomBytes } from 'node:crypto'
import { pkcs12 } from '../../../certs/authority/pkcs12.ts'
import { readableCode } from '../../admin/keys/setup.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { copyableCode, exactHtml, type HtmlFragment, html, joinHtml } from '../frame/parts.ts'
import { baseUrlOf } from '../frame/snippets.ts'

interface MintedIdentity {
  readonly cert_chain_pem: string
  readonly private_key_pem: string
}

/** An operator's key signs people in, an agent's calls: browsers and systems take either from one file. */
function pkcs12Link(
  name: string,
  { cert_chain_pem: chainPem, private_key_pem: privateKeyPem }: MintedIdentity,
) {
  const password = readableCode(randomBytes(20))
  const file = pkcs12({ chainPem, privateKeyPem, name, password }).toString('base64')
  return html`<p><a class="button" download="${name}.p12" href="data:application/x-pkcs12;base64,${file}">Download ${name}.p12</a> for a browser, Keychain or Windows. Its password, which is shown only here: ${copyableCode(password)}</p>`
}

/** The folder of an identity, shown once. `path`: where clients look for it, `agents/<name>`. */
export function identityFolder(
  dashboard: DashboardContext,
  { path, id }: { readonly path: string; readonly id: string },
  minted: MintedIdentity,
  proofKey: JsonWebKey | null,
): HtmlFragment {
  const { cert_chain_pem: cert, private_key_pem: key } = minted
  const { rootsPem, trustPem } = dashboard.context.authority
  const files = [
    ['agent.key', key],
    ['agent.crt', cert],
    ...(proofKey === null ? [] : [['dpop.jwk', `${JSON.stringify(proofKey)}\n`] as const]),
    ['org-ca.crt', rootsPem],
    ['ca-chain.pem', trustPem],
    ['gateway.json', `${JSON.stringify({ url: baseUrlOf(dashboard), agent_id: id })}\n`],
  ] as const
  return html`<p class="notice once">This page shows the private keys once. The service keeps no copy of them.</p>
${pkcs12Link(path.split('/').at(-1) ?? path, minted)}<section class="card" data-folder="${path}"><h2>Save these in ${path}/</h2>${joinHtml(
    files.map(
      ([name, text]) =>
        html`<details class="file"><summary>${name}</summary><pre class="copy" tabindex="0" data-file="${name}">${exactHtml(text)}</pre></details>`,
    ),
  )}<details class="file"><summary>All of them, with one paste into a terminal</summary><pre class="copy" tabindex="0" id="pasted">${exactHtml(writeFilesCommand(path, files))}</pre></details>
<p class="faint"><code>org-ca.crt</code> is <a href="/pki/ca.crt" download="org-ca.crt">the CA by which clients and browsers recognise the gateway</a>. Make the keys readable only by you: <code class="copy" tabindex="0">chmod 600 ${path}/agent.key${proofKey === null ? '' : ` ${path}/dpop.jwk`}</code>. Otherwise the sidecar does not start.</p></section>`
}

/** Commands that write files, none of whose lines says END alone, for their owner alone to read. */
const writeFilesCommand = (path: string, files: readonly (readonly [name: string, text: string])[]): string =>
  [
    `(umask 077; mkdir -p ${path} && cd ${path}`,
    ...files.map(([name, text]) => `cat > ${name} <<'END'\n${text.trimEnd()}\nEND`),
    ')',
  ].join('\n')
