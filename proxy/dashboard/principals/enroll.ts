import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/administer.ts'
import { OPERATIONS } from '../../admin/operations.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import type { Submitted } from '../acting.ts'
import type { Dashboard } from '../dashboard.ts'
import { frame } from '../frame.ts'
import { all, type Html, html, pathOf } from '../parts.ts'
import { snippets } from '../snippets.ts'
import { typedTokens } from './capabilities-card.ts'
import { PAGES, type Plural } from './kinds.ts'

/**
 * POST /proxy/{kind}: enrolls one. An agent's certificate and key are in the answer itself, this once: in no URL, in no
 * cache, and behind no way back, since the same form is a conflict the second time.
 */
export const enrollForm =
  (plural: Plural, dashboard: Dashboard) =>
  async (facts: Submitted): Promise<Reply> => {
    const { kind } = PAGES[plural]
    const { form } = facts
    const common = {
      display_name: form.get('display_name') || null,
      capabilities: [...typedTokens(form.get('capabilities') ?? '')],
    }
    const name = form.get(kind.nameField) ?? ''
    try {
      if (plural === 'agents') return await enrollAgent(dashboard, { ...common, agent_name: name }, facts)
      const body = { ...common, [kind.nameField]: name } as never
      const done = await administerOnRecord(
        PAGES[plural].operations.create,
        dashboard.context,
        { body },
        facts,
      )
      if ('proposed' in done) return seeOther(`/proxy/${plural}?notice=proposed`)
      return seeOther(pathOf(plural, done.value.principal_id ?? ''))
    } catch (error) {
      if (!(error instanceof Refusal) || error.status >= 500) throw error
      return frame(dashboard, facts, {
        title: 'This was not enrolled',
        section: `/proxy/${plural}`,
        status: error.status,
        body: html`${problems(error)}<p><a href="/proxy/${plural}">Back</a>: the way back of the browser keeps what was typed.</p>`,
      })
    }
  }

async function enrollAgent(
  dashboard: Dashboard,
  body: {
    readonly agent_name: string
    readonly display_name: string | null
    readonly capabilities: string[]
  },
  facts: Submitted,
): Promise<Reply> {
  const done = await administerOnRecord(OPERATIONS.agents.create, dashboard.context, { body }, facts)
  if ('proposed' in done) return seeOther('/proxy/agents?notice=proposed')
  const { value } = done
  const id = value.agent_id ?? ''
  return frame(dashboard, facts, {
    title: `${body.agent_name} is enrolled`,
    section: '/proxy/agents',
    body: shownOnce(dashboard, { ...value, id, name: body.agent_name }),
  })
}

interface Minted {
  readonly id: string
  readonly name: string
  readonly cert_chain_pem: string
  readonly private_key_pem: string
}

/** The key and the certificate, this once, and what to tell clients; waits for the first call. */
export const shownOnce = (
  dashboard: Dashboard,
  { id, name, ...pem }: Minted,
): Html => html`<p class="notice">This page shows the private key once. The service keeps no copy of it.</p>
<section class="card"><h2>Save these as agents/${name}/</h2>
<h3>agent.key</h3><pre class="copy secret" tabindex="0">${pem.private_key_pem}</pre>
<h3>agent.crt</h3><pre class="copy" tabindex="0">${pem.cert_chain_pem}</pre>
<h3>org-ca.crt</h3><p><a href="/pki/ca.crt" download="org-ca.crt">The CA that clients trust the gateway by</a></p></section>
<section class="card"><h2>Connect</h2>${snippets(dashboard, name)}
<div id="first-call" data-wait="${pathOf('agents', id)}/first-call"><p role="status">Waiting for the first call… <a href="${pathOf('agents', id)}/first-call">Look again</a></p></div></section>`

/** Why something was not done, each field by name. */
export function problems({ message, detail }: Refusal): Html {
  const { errors } = detail as { readonly errors?: readonly { field: string; message: string }[] }
  if (!errors) return html`<p class="problem" role="alert">${message}</p>`
  return html`<ul class="problem" role="alert">${all(errors.map(({ field, message: why }) => html`<li><code>${field}</code> ${why}</li>`))}</ul>`
}
