import { generateKeyPairSync, type JsonWebKey } from 'node:crypto'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { exactHtml, type HtmlFragment, html, joinHtml, pathOf } from '../frame/parts.ts'
import { baseUrlOf, clientSnippets } from '../frame/snippets.ts'
import { askFirst } from '../rehearsed/acting-rehearsed.ts'
import { typedTokens } from './capabilities-card.ts'
import { graceOf } from './grace.ts'
import { PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

/** Makes the key of an agent's proofs, as `sallyport agent` does: the private JWK, and the public one. */
function newProofKey() {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' })
  const { d: _, ...jwk } = key
  return { key, jwk: { ...jwk, kty: 'EC' } }
}

interface MintedIdentity {
  readonly cert_chain_pem: string
  readonly private_key_pem: string
}

/** The folder of an identity, shown once. `path`: where clients look for it, `agents/<name>`. */
function identityFolder(
  dashboard: DashboardContext,
  { path, id }: { readonly path: string; readonly id: string },
  { cert_chain_pem: cert, private_key_pem: key }: MintedIdentity,
  proofKey: JsonWebKey | null,
): HtmlFragment {
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
<section class="card" data-folder="${path}"><h2>Save these in ${path}/</h2>${joinHtml(
    files.map(
      ([name, text]) =>
        html`<details class="file"><summary>${name}</summary><pre class="copy" tabindex="0" data-file="${name}">${exactHtml(text)}</pre></details>`,
    ),
  )}<details class="file"><summary>All of them, with one paste into a terminal</summary><pre class="copy" tabindex="0" id="pasted">${exactHtml(writeFilesCommand(path, files))}</pre></details>
<p class="faint"><code>org-ca.crt</code> is <a href="/pki/ca.crt" download="org-ca.crt">the CA by which clients and browsers recognise the gateway</a>. Make the keys readable only by you: <code class="copy" tabindex="0">chmod 600 ${path}/agent.key${proofKey === null ? '' : ` ${path}/dpop.jwk`}</code>. Otherwise the sidecar does not start.</p></section>`
}

const connectCard = (
  dashboard: DashboardContext,
  id: string,
  name: string,
): HtmlFragment => html`<section class="card"><h2>Connect</h2>
${clientSnippets(dashboard, name)}
<div id="first-call" data-wait="${pathOf('agents', id)}/first-call"><p role="status">Waiting for the first call… <a href="${pathOf('agents', id)}/first-call">Check again</a></p></div></section>`

/** Commands that write files, none of whose lines says END alone, for their owner alone to read. */
const writeFilesCommand = (path: string, files: readonly (readonly [name: string, text: string])[]): string =>
  [
    `(umask 077; mkdir -p ${path} && cd ${path}`,
    ...files.map(([name, text]) => `cat > ${name} <<'END'\n${text.trimEnd()}\nEND`),
    ')',
  ].join('\n')

/**
 * POST /proxy/{kind}: enrolls one. The key is in the answer itself: in no URL and in no cache, and not
 * reached by the back button, since the same form is a conflict the second time.
 */
export const enrollForm =
  (plural: PrincipalPlural, dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { kind } = PRINCIPAL_PAGES[plural]
    const { form } = facts
    const common = {
      display_name: form.get('display_name') || null,
      capabilities: [...typedTokens(form.get('capabilities') ?? '')],
    }
    const name = form.get(kind.nameField) ?? ''
    if (plural === 'agents') return enrollAgent(dashboard, { ...common, agent_name: name }, facts)
    const body = { ...common, [kind.nameField]: name } as never
    const { create } = PRINCIPAL_PAGES[plural].operations
    const done = await administerOnRecord(create, dashboard.context, { body }, facts)
    if ('proposed' in done) return seeOther(`/proxy/${plural}?notice=proposed`)
    return seeOther(pathOf(plural, done.value.principal_id ?? ''))
  }

interface NewAgent {
  readonly agent_name: string
  readonly display_name: string | null
  readonly capabilities: string[]
}

async function enrollAgent(
  dashboard: DashboardContext,
  body: NewAgent,
  facts: FormSubmission,
): Promise<Reply> {
  const shown = await enrollAndShow(dashboard, body, facts)
  if (shown === null) return seeOther('/proxy/agents?notice=proposed')
  return frame(dashboard, facts, {
    title: `${body.agent_name} is enrolled`,
    section: '/proxy/agents',
    body: shown,
  })
}

/** Enrolls an agent and renders its key, this once. Null: it waits for a second operator. */
export async function enrollAndShow(
  dashboard: DashboardContext,
  body: NewAgent,
  facts: FormSubmission,
): Promise<HtmlFragment | null> {
  const { key, jwk } = newProofKey()
  const given = { body: { ...body, dpop_jwk: jwk } }
  const done = await administerOnRecord(OPERATIONS.agents.create, dashboard.context, given, facts)
  if ('proposed' in done) return null
  const { value } = done
  const { agent_name: name } = body
  const id = value.agent_id ?? ''
  return html`${identityFolder(dashboard, { path: `agents/${name}`, id }, value, key)}${connectCard(dashboard, id, name)}`
}

/** POST /proxy/{kind}/{id}/rotate-cert: another certificate and key, shown this once. */
export const rotateCertificateForm =
  (plural: PrincipalPlural, dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { id = '' } = facts.params
    const { rotateCertificate } = PRINCIPAL_PAGES[plural].operations
    const { key, jwk } = facts.form.get('proof_key') === 'new' ? newProofKey() : { key: null, jwk: null }
    const given = { ...inputById(facts), body: { ...graceOf(facts), ...(jwk && { dpop_jwk: jwk }) } }
    const name = id.split('::').at(-1) ?? id
    const asked = await askFirst(dashboard, rotateCertificate, given, facts, {
      title: `The certificate of ${name} ends now`,
      label: 'Rotate the certificate',
    })
    if (asked) return asked
    const done = await administerOnRecord(rotateCertificate, dashboard.context, given, facts)
    if ('proposed' in done) return seeOther(`/proxy/${plural}?notice=proposed`)
    const { value } = done
    return frame(dashboard, facts, {
      title: `${name} has a new certificate`,
      section: `/proxy/${plural}`,
      body: html`${identityFolder(dashboard, { path: `${plural}/${name}`, id }, value, key)}<p>${
        value.previous_valid_until === null
          ? 'No earlier certificate of it is accepted.'
          : `The previous certificate is accepted until ${value.previous_valid_until}.`
      } <a href="${pathOf(plural, id)}">Back</a></p>`,
    })
  }
