import { type JsonWebKey, randomBytes } from 'node:crypto'
import { pkcs12 } from '../../../certs/authority/pkcs12.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { readableCode } from '../../admin/keys/secret.ts'
import { acceptInvitation, readInvitation } from '../../admin/principals/invitation.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame, htmlDocument } from '../frame/frame.ts'
import {
  button,
  capabilityTokens,
  copyableCode,
  exactHtml,
  factList,
  type HtmlFragment,
  html,
  pathOf,
} from '../frame/parts.ts'
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
${pkcs12Link(path.split('/').at(-1) ?? path, minted)}<section class="card" data-folder="${path}"><h2>Save these in ${path}/</h2>${files.map(
    ([name, text]) =>
      html`<details class="file"><summary>${name}</summary><pre class="copy" tabindex="0" data-file="${name}">${exactHtml(text)}</pre></details>`,
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

export const inviteButton = (facts: AdministrationFacts, id: string, revision: number): HtmlFragment =>
  html`<p>${button(facts, 'admin.operators', `${pathOf('operators', id)}/invitation`, 'Make an invitation', { if_match: `"${revision}"` })} <span class="faint">A link by which one person takes the certificate of this operator, in place of any before.</span></p>`

/** POST /proxy/operators/{id}/invitation: makes the link, and shows it this once. */
export const inviteForm =
  (dashboard: DashboardContext) =>
  (facts: FormSubmission): Promise<Reply> =>
    showInvitation(dashboard, facts.params.id ?? '', facts)

export async function showInvitation(
  dashboard: DashboardContext,
  id: string,
  facts: FormSubmission,
): Promise<Reply> {
  const given = { ...inputById(facts), params: { id } }
  const done = await administerOnRecord(OPERATIONS.operators.invite, dashboard.context, given, facts)
  if ('proposed' in done) return seeOther(`${pathOf('operators', id)}?notice=proposed`)
  const { path, expires_at: until } = done.value
  // The pages that its maker uses: a gateway may have several names, not all of them for administration.
  const origin = facts.headers.origin ?? dashboard.signIn.adminPages()[0] ?? ''
  return frame(dashboard, facts, {
    title: 'An invitation',
    section: '/proxy/operators',
    body: html`<p class="notice once">This page shows the link once.</p>
<section class="card"><h2>Send this link to one person</h2><p>${copyableCode(`${origin}${path}`)}</p>
<p>Whoever opens it first becomes <b>${id}</b>, with the capabilities that it holds now, and its certificate in place of any before. Send it by a way that nobody else reads. It is good once, until ${until}, and no longer than ${id} and you are as you are now: change either to take it back.</p>
<p><a href="${pathOf('operators', id)}">Back</a></p></section>`,
  })
}

const alone = (title: string, body: HtmlFragment): Reply =>
  htmlDocument(title, html`<main class="alone"><h1>${title}</h1>${body}</main>`)

/** GET /proxy/invited?code=: shows who invites whom. It uses nothing up, since programs look at links too. */
export const invitedPage =
  ({ context }: DashboardContext) =>
  async ({ query, at }: Arrival): Promise<Reply> => {
    const code = new URLSearchParams(query).get('code') ?? ''
    const { operator, invitedBy, until } = await readInvitation(context, code, at)
    return alone(
      'You are invited',
      html`<p><b>${invitedBy}</b> invites you to administer Sallyport, the gateway of <b>${context.organisation}</b>.</p>${factList(
        [
          ['You become', operator.principal_id],
          ['You may', capabilityTokens(operator.capabilities)],
          ['Good until', until],
        ],
      )}<p>The next page has your key and certificate, once, and this link is used up: open it on your own machine.</p>
<form method="post" action="/proxy/invited"><input type="hidden" name="code" value="${code}"><button class="main">Take the certificate</button></form>`,
    )
  }

/** POST /proxy/invited: makes the certificate, and shows it this once. */
export const acceptForm =
  (dashboard: DashboardContext) =>
  async (facts: Arrival & SubmittedForm): Promise<Reply> => {
    const taken = await acceptInvitation(dashboard.context, facts, facts.form.get('code') ?? '')
    const { id, chainPem, privateKeyPem } = taken
    const name = id.split('::').at(-1) ?? id
    const minted = { cert_chain_pem: chainPem, private_key_pem: privateKeyPem }
    return alone(
      `You are ${id}`,
      html`<p>Import the <code>.p12</code> file into your browser or system, open <a href="/proxy/sign-in">the sign-in page</a> in a new window, choose this certificate when it asks, and press <i>Sign in as ${id}</i>.</p>${dashboard.proofRequired && html`<p class="notice">This service asks for signed proofs, which no browser makes: use the files below with the command line.</p>`}
${identityFolder(dashboard, { path: `operators/${name}`, id }, minted, null)}`,
    )
  }
