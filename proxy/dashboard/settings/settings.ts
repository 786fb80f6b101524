import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { reachableOwners } from '../../admin/operators/owners.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { ConfigurationInForce, DashboardContext, ModeInForce } from '../frame/dashboard.ts'
import { type DashboardPage, frame } from '../frame/frame.ts'
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
  problemList,
  relativeTime,
} from '../frame/parts.ts'
import { type RehearsalChangesInput, rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { rehearsalOf } from '../rehearsed/rehearsal.ts'

type ChosenModes = Readonly<Record<string, string>>

function modesCard(
  modes: readonly ModeInForce[],
  facts: AdministrationFacts,
  chosen: ChosenModes = {},
): HtmlFragment {
  const rows = modes.map(
    (mode) =>
      html`<tr><td><code>${mode.name}</code></td><td>${mode.value}</td><td>${placeOf(mode)}</td></tr>`,
  )
  return html`<section class="card" id="modes"><h2>How every call is judged</h2>${dataTable(['Mode', 'In force', 'Comes from'], rows, EMPTY_HTML)}
${
  hasCapability(facts, 'admin.grant')
    ? html`<form method="post" action="/proxy/settings/modes" class="search">${csrf(facts.session)}${modes.map((mode) => choice(mode, chosen[mode.name]))}<button>Rehearse</button></form>
<p class="faint">Shows which calls of the last 30 days this would have refused, and which line to change. It changes nothing, but leaves a row in the ledger.</p>`
    : html`<p class="needs">Rehearsing another mode needs <code>admin.grant</code>.</p>`
}</section>`
}

function placeOf({ path, line, variable }: ModeInForce): HtmlFragment {
  if (variable !== null)
    return html`<code>${variable}</code>, which overrides ${path === null ? 'the file' : line === null ? copyableCode(path) : copyableCode(`${path}:${line}`)}`
  if (path === null) return html`<span class="faint">the default: its plugin has no file</span>`
  return line === null
    ? html`<span class="faint">the default: it is not set in</span> ${copyableCode(path)}`
    : copyableCode(`${path}:${line}`)
}

const choice = ({ name, value, values }: ModeInForce, chosen = value): HtmlFragment =>
  html`<label>${name} <select name="${name}">${values.map((one) => html`<option${one === chosen ? html` selected` : EMPTY_HTML}>${one}</option>`)}</select></label> `

/**
 * POST /proxy/settings/modes: rehearses other modes over 30 days, with one row. Files decide what is in
 * force.
 */
export const modesForm =
  (dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { modes } = dashboard.inForce
    const chosen = Object.fromEntries(modes.map(({ name }) => [name, facts.form.get(name) ?? '']))
    const others = modes.filter(({ name, value }) => chosen[name] !== '' && chosen[name] !== value)
    const shown = (body: HtmlFragment, status = 200): Promise<Reply> =>
      frame(dashboard, facts, {
        title: 'Other modes, rehearsed',
        section: '/proxy/settings',
        status,
        body: html`${body}${modesCard(modes, facts, chosen)}<p><a href="/proxy/settings">Back</a></p>`,
      })
    try {
      if (others.length === 0)
        throw unprocessableBody([{ field: 'modes', message: 'are all already in force: choose another one' }])
      const settings = Object.fromEntries(others.map((mode) => [mode.name, readAs(mode, chosen)]))
      // Its schema says once more what a mode may be.
      const changes = [{ settings }] as RehearsalChangesInput
      const { create } = OPERATIONS.rehearsals
      const done = await administerOnRecord(create, dashboard.context, { body: { changes } }, facts)
      // Proven by the operation, which is harmless: nothing waits.
      if ('proposed' in done) throw new Error('a rehearsal waits for nobody')
      const { value } = done
      return await shown(html`${rehearsalOf(value, facts.at)}
<section class="card"><h2>How to make this change</h2><ul>${others.map((mode) => html`<li>${renderInstruction(mode, chosen[mode.name] ?? '')}</li>`)}</ul><p class="faint">It is recorded as <code>${value.id}</code>.</p></section>`)
    } catch (error) {
      if (!(error instanceof Refusal) || !AGAIN.has(error.reason)) throw error
      return shown(problemList(error), error.status)
    }
  }

const AGAIN: ReadonlySet<string> = new Set(['body_unprocessable', 'overloaded'])

const readAs = ({ name, values }: ModeInForce, chosen: ChosenModes): string | boolean => {
  const text = chosen[name] ?? ''
  return values.includes('true') && values.includes(text) ? text === 'true' : text
}

function renderInstruction({ name, path, line, variable }: ModeInForce, wanted: string): HtmlFragment {
  const text = html`<code class="copy" tabindex="0">${name}: ${wanted}</code>`
  if (variable !== null)
    return html`Set <code class="copy" tabindex="0">${variable}=${wanted}</code> and restart: while it is set, the file is ignored.`
  if (path === null) return html`Write ${text} into a file of its plugin, and reload.`
  return line === null
    ? html`Add the line ${text} to ${copyableCode(path)}, and reload.`
    : html`Write ${text} at ${copyableCode(`${path}:${line}`)}, and reload.`
}

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
  const to = '/proxy/settings'
  return {
    disable: rehearsedFormHandler(dashboard, OPERATIONS.secret.disable, {
      ...{ to, notice: 'disabled', label: 'Disable the secret' },
      title: () => 'Nobody administers by the secret any more',
      warning: (facts) => secretWarning(dashboard, facts),
    }),
    end: formHandler(dashboard, OPERATIONS.sessions.end, { to, notice: 'ended' }),
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
        html`<tr><td>${copyableCode(path)}</td><td>${plugin}${shadow ? html` <span class="badge">only watches</span>` : EMPTY_HTML}</td><td>${options.map(({ name, line }) => html`<code>${name}</code> <span class="faint">line ${String(line)}</span> `)}</td><td><code title="${own}">${own.slice(0, 12)}</code></td></tr>`,
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
${!secret.disabled && html`<p>${button(facts, 'admin.operators', '/proxy/settings/secret/disable', 'Disable the secret')} <span class="faint">From then on only operators can administer.</span></p>`}`
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
        html`${organisation.organisation} ${canBeNamed && html`<a href="/proxy/setup/organisation">Name it</a>`}`,
      ],
      ['Trust domain', organisation.trust_domain],
      ['Second operator for', context.twoPerson.join(', ') || 'nothing'],
      ['Rehearsal before changes', context.requireRehearsal],
    ])}</section>
${filesCard(inForce, context.configDigest)}`,
  }
}
