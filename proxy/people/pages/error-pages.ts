import type { Arrival } from '../../../plugins/plugin.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { refusalReply } from '../../http/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import { html } from '../../operators/pages/html.ts'
import { plainPage } from '../../operators/pages/page.ts'

/** Renders a refusal for a person: nothing here leads to administration. */
export function peopleRefusalPage(refusal: Refusal, { id }: Pick<Arrival, 'id'>): Reply {
  const { headers: _, ...page } = plainPage({
    status: refusal.status,
    title: 'This did not work',
    body: html`<p>${refusal.message}</p><p><small>${id}</small></p>`,
  })
  return { ...page, headers: { ...HTML_HEADERS, ...refusal.headers } }
}

const { headers: HTML_HEADERS = {} } = plainPage({ title: '', body: html`` })

/** Renders an error of OAuth for the browser of a person. */
export const oauthErrorPage = ({ error, error_description: why }: Readonly<Record<string, string>>): Reply =>
  plainPage({
    status: 400,
    title: 'This did not work',
    body: html`<p>The program that sent you here asked for something that is not possible: <code>${error ?? ''}</code>.</p><p>${why ?? ''}</p><p>Begin again in that program.</p>`,
  })

/** Renders a refusal for a program that speaks OAuth (RFC 6749 §5.2). */
export function peopleOauthRefusal(refusal: Refusal, { id }: Pick<Arrival, 'id'>): Reply {
  const { status, reason, message } = refusal
  const error = status >= 500 || status === 429 ? 'temporarily_unavailable' : 'invalid_request'
  const reply = refusalReply(refusal, id)
  return { ...reply, body: JSON.stringify({ error, error_description: message, reason, request_id: id }) }
}
