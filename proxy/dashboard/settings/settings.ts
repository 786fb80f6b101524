import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { reachableOwners } from '../../admin/operators/owners.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  copyableCode,
  countWithNoun,
  csrf,
  dataTable,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  hasCapability,
  html,
  htmlIf,
  joinHtml,
  relativeTime,
} from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import type { ConfigurationInForce } from './in-force.ts'
import { modesCard } from './modes.ts'

/** POST /proxy/settings/secret: another operator secret, typed twice. */
export const rotateForm =
  (dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const [secret, again] = [facts.form.get('secret') ?? '', facts.form.get('secret_again') ?? '']
    if (secret !== again)
      throw new Refusal('body_unprocessable', { message: 'The two secrets do not match.' })
    const body = { new_secret: secret }
    await administerOnRecord(OPERATIONS.secret.rotate, dashboard.context, { body }, facts)
    return seeOther('/proxy/settings?notice=rotated')
  }

export const settingsForms = (dashboard: DashboardContext) => {
  const to = (): string => '/proxy/settings'
  return {
    disable: rehearsedFormHandler(dashboard, OPERATIONS.secret.disable, {
      ...{ given: () => ({}), to, notice: 'disabled', label: 'Disable the secret' },
      title: () => 'Nobody administers by the secret any more',
      warning: (facts) => secretWarning(dashboard, facts),
    }),
    end: formHandler(dashboard, OPERATIONS.sessions.end, { given: inputById, to, notice: 'ended' }),
  }
}

/** Says who signs in by the secret, and who administers without it. */
async function secretWarning(
  { context }: DashboardContext,
  facts: FormSubmission,
): Promise<HtmlFragment | null> {
  const { value } = await perform(OPERATIONS.sessions.list, context, { query: { operator: 'admin' } }, facts)
  const owners = await reachableOwners(context, facts.at)
  const { actor, at } = facts
  const { value: secret } = await perform(OPERATIONS.secret.show, context, {}, facts)
  return html`<p>${countWithNoun(value.sessions.length, 'browser')} signed in by it ${value.sessions.length === 1 ? 'is' : 'are'} signed out${actor.via === 'secret' ? ', yours too' : ''}, and scripts that send it are refused. ${secret.last_used_at === null ? html`It was not used since the first operator was enrolled.` : html`It was last used ${relativeTime(secret.last_used_at, at)}.`} Only the gateway's own machine can enable it again.</p><p>These administer operators without it: ${owners.map(({ name }) => name).join(', ') || 'nobody'}.</p>`
}

/** The operators' files in force: their paths, the lines that say what, and the digest. No value of any. */
const filesCard = ({ files }: ConfigurationInForce, digest: string): HtmlFragment =>
  html`<section class="card"><h2>Files in force</h2><p>Digest of all files: ${copyableCode(digest)}</p>${dataTable(
    ['File', 'Plugin', 'Options and their lines', 'Digest'],
    files.map(
      ({ path, plugin, shadow, options, digest: own }) =>
        html`<tr><td>${copyableCode(path)}</td><td>${plugin}${shadow ? html` <span class="badge">only watches</span>` : EMPTY_HTML}</td><td>${joinHtml(options.map(({ name, line }) => html`<code>${name}</code> <span class="faint">line ${String(line)}</span> `))}</td><td><code title="${own}">${own.slice(0, 12)}</code></td></tr>`,
    ),
    html`<p>There are none.</p>`,
  )}<p class="faint">On the machine, <code class="copy" tabindex="0">make check-config</code> shows what they mean, before they are reloaded.</p></section>`

export const settingsPage: DashboardPage = async ({ context, inForce }, facts) => {
  const { at } = facts
  const { value: secret } = await perform(OPERATIONS.secret.show, context, {}, facts)
  const { value } = await perform(OPERATIONS.sessions.list, context, { query: {} }, facts)
  const { value: organisation } = await perform(OPERATIONS.organisation.show, context, {}, facts)
  const isFixed = organisation.organisation_fixed_by !== null && organisation.trust_domain_fixed_by !== null
  const canBeNamed = !organisation.answered && !isFixed && hasCapability(facts, 'admin.settings')
  return {
    title: 'Settings',
    section: '/proxy/settings',
    body: html`<section class="card"><h2>Operator secret</h2>${factsOf([
      ['State', secret.disabled ? 'disabled' : secret.is_set ? 'set' : 'not set'],
      [
        'Last used',
        secret.last_used_at === null
          ? 'not since the first operator was enrolled'
          : relativeTime(secret.last_used_at, at),
      ],
    ])}
${
  hasCapability(facts, 'admin.operators')
    ? html`<form method="post" action="/proxy/settings/secret">${csrf(facts.session)}<label>New secret <input type="password" name="secret" required minlength="12" maxlength="72" autocomplete="new-password" data-strength></label><label>Repeat it <input type="password" name="secret_again" required minlength="12" maxlength="72" autocomplete="new-password"></label><p class="faint">12 to 72 letters, digits and symbols, no spaces.</p><button>Rotate</button></form>
${htmlIf(!secret.disabled, () => html`<p>${button(facts, 'admin.operators', '/proxy/settings/secret/disable', 'Disable the secret')} <span class="faint">From then on only operators can administer.</span></p>`)}`
    : html`<p class="needs">Rotating it needs <code>admin.operators</code>.</p>`
}</section>
<section class="card"><h2>Signed in with a browser</h2>${dataTable(
      ['Operator', 'By', 'Since', 'Last used', 'Until', ''],
      value.sessions.map(
        (one) =>
          html`<tr><td>${one.operator}${one.current ? html` <span class="badge">this one</span>` : ''}</td><td>${[one.via, ...one.amr].join(', ')}</td><td>${relativeTime(one.created_at, at)}</td><td>${relativeTime(one.used_at, at)}</td><td>${relativeTime(one.expires_at, at)}</td><td>${button(facts, 'admin.read', `/proxy/settings/sessions/${one.id}/end`, 'End')}</td></tr>`,
      ),
      html`<p>Nobody.</p>`,
    )}</section>
${modesCard(inForce.modes, facts)}
<section class="card"><h2>Configuration in force</h2>${factsOf([
      [
        'Organisation',
        html`${organisation.organisation} ${htmlIf(canBeNamed, () => html`<a href="/proxy/setup/organisation">Name it</a>`)}`,
      ],
      ['Trust domain', organisation.trust_domain],
      ['Second operator for', context.twoPerson.join(', ') || 'nothing'],
      ['Rehearsal before changes', context.requireRehearsal],
    ])}</section>
${filesCard(inForce, context.configDigest)}`,
  }
}
