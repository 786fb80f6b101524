import { generateKeyPairSync } from 'node:crypto'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { type HtmlFragment, html, pathOf } from '../frame/parts.ts'
import { clientSnippets } from '../frame/snippets.ts'
import { askFirst } from '../rehearsed/acting-rehearsed.ts'
import { typedTokens } from './capabilities-card.ts'
import { graceOf, operatorWarning } from './ending.ts'
import { identityFolder, showInvitation } from './invited.ts'
import { PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

/** Makes the key of an agent's proofs, as `sallyport agent` does: the private JWK, and the public one. */
function newProofKey() {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' })
  const { d: _, ...jwk } = key
  return { key, jwk: { ...jwk, kty: 'EC' } }
}

const connectCard = (
  dashboard: DashboardContext,
  id: string,
  name: string,
): HtmlFragment => html`<section class="card"><h2>Connect</h2>
${clientSnippets(dashboard, name)}
<div id="first-call" data-wait="${pathOf('agents', id)}/first-call"><p role="status">Waiting for the first call… <a href="${pathOf('agents', id)}/first-call">Check again</a></p></div></section>`

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
    const id = done.value.principal_id ?? ''
    if (form.get('invite') === 'yes') return showInvitation(dashboard, id, facts)
    return seeOther(pathOf(plural, id))
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
      warning: facts.form.get('grace_hours') === '0' ? await operatorWarning(plural, dashboard, facts) : null,
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
