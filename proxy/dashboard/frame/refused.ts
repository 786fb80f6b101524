import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { challengeHeaders } from '../../http/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import { withNext } from '../../operators/pages/next.ts'
import { redirectPage, seeOther } from '../../operators/pages/page.ts'
import { isFromOtherOrigin } from '../../operators/pages/visitor.ts'
import { htmlDocument, navigation, sectionOf } from './frame.ts'
import { EMPTY_HTML, html, problemList } from './parts.ts'

const NAVIGATION = html`<header><a class="brand" href="/proxy">Sallyport</a>${navigation('')}</header>`

/**
 * Renders a refusal as a page. One that comes from another site has sent no Strict cookie, so a page of ours
 * leads it on.
 */
export function refusedPage(refusal: Refusal, facts: Arrival | AdministrationFacts): Reply {
  const { reason, status, headers, detail } = refusal
  const { id, path, query, method } = facts
  const here = query === '' ? path : `${path}?${query}`
  if (reason === 'signed_out' && (method === 'GET' || method === 'HEAD'))
    return isFromOtherOrigin(facts) ? redirectPage(here) : seeOther(withNext('/proxy/sign-in', here))
  if (reason === 'signed_out') return seeOther('/proxy/sign-in')
  const needed = detail.required_capability
  return htmlDocument(
    'This did not work',
    html`${'session' in facts && facts.session ? NAVIGATION : EMPTY_HTML}<main class="alone"><h1>This did not work</h1>${problemList(refusal)}${
      typeof needed === 'string'
        ? html`<p>It needs <code>${needed}</code>. An operator with <code>admin.operators</code> can grant it.</p>`
        : EMPTY_HTML
    }<p><a href="${sectionOf(path)}">Back</a></p><p class="faint"><code>${id}</code></p></main>`,
    status,
    { ...challengeHeaders(refusal), ...headers },
  )
}
