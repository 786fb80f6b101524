import { REJECTED_FLAG } from '../../../db/mcp/tools.ts'
import type { AttentionDeferral } from '../../../db/operators/deferrals.ts'
import { isObject } from '../../../db/support/json.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { deferCard, listDeferrals, type OpenRefusal } from '../../admin/audit/attention.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { PRINCIPAL_KINDS } from '../../admin/operation/kinds.ts'
import { perform } from '../../admin/operation/operation.ts'
import { endsSoon, listEndingCertificates } from '../../admin/principals/ending.ts'
import { formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  type AttentionCard,
  attentionCard,
  button,
  countWithNoun,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { keylessCallers } from './keyless.ts'
import { cardId, deferredCard, notNowForm, plainText } from './not-now.ts'
import { otherModels } from './other-models.ts'
import { aboutRefusal, openRefusals, refusalsCard, titleOfRefusal } from './refusals.ts'
import { standingCards } from './standing.ts'

async function endingCertificates(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const { value: soon } = await perform(listEndingCertificates, context, {}, facts)
  if (soon.length === 0) return []
  const lines = soon.map(
    ({ principal_type: type, principal_id: id, name, svid, cert_not_after: end }) =>
      html`<li><a href="${pathOf(PRINCIPAL_KINDS[type].plural, id)}">${name}</a> ${relativeTime(end, facts.at)}${svid ? html` <span class="faint">its SVID; it has not been seen with a newer one</span>` : EMPTY_HTML}</li>`,
  )
  const about = ['certificates', ...soon.map(({ principal_id: id, cert_not_after: end }) => `${id} ${end}`)]
  return [
    attentionCard(html`Certificates that end within 30 days`, html`<ul>${lines}</ul>`, about.join('\n')),
  ]
}

/** Half a year: the CA is replaced in steps, and nothing that it issues lives longer than it does. */
const REPLACE_MS = 180 * 86_400_000

/** The service's own CA, while it is being replaced, and from half a year before its end. */
async function ownCa(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const { rotation, notAfter } = context.authority
  if (rotation === null && notAfter - facts.at > REPLACE_MS) return []
  if (rotation === null) {
    const end = new Date(notAfter).toISOString()
    return [
      attentionCard(
        html`This organisation's CA ends ${relativeTime(end, facts.at)}`,
        html`<p><a href="/proxy/pki">Replace it</a></p>`,
      ),
    ]
  }
  const { value } = await perform(OPERATIONS.caRotation.show, context, {}, facts)
  const next = value.phase === 'issuing' ? 'Finish it once nobody does.' : 'The next one is prepared.'
  return [
    attentionCard(
      html`This organisation's CA is being replaced`,
      html`<p>${String(value.holders?.active ?? 0)} active principals hold certificates of the old one. ${next} <a href="/proxy/pki">PKI</a></p>`,
    ),
  ]
}

async function endingCas(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const { value: cas } = await perform(OPERATIONS.cas.list, context, {}, facts)
  // One that another of the same name and kind has followed needs nobody.
  const soon = cas.filter(
    ({ not_after: end, subject, kind }) =>
      endsSoon(end, facts.at) &&
      !cas.some(
        (next) => next.subject === subject && next.kind === kind && !endsSoon(next.not_after, facts.at),
      ),
  )
  if (soon.length === 0) return []
  const lines = soon.map(
    ({ subject, kind, not_after: end }) =>
      html`<li>${subject} <span class="faint">${kind}</span> ${relativeTime(end, facts.at)}</li>`,
  )
  return [
    attentionCard(
      html`Attached CAs that end within 30 days`,
      html`<ul>${lines}</ul><p><a href="/proxy/pki">Attach the next ones</a></p>`,
      ['cas', ...soon.map(({ digest }) => digest)].join('\n'),
    ),
  ]
}

/** The time that a followed bundle may fail before a person is needed. ms. */
const BUNDLE_PATIENCE_MS = 900_000

/** The followed trust bundles that could not be read for a while. */
const unreadBundles = (
  { context }: DashboardContext,
  { at }: AdministrationFacts,
): readonly AttentionCard[] =>
  [...context.trustBundles()].flatMap(([name, reading]) =>
    reading?.failingSince && at - reading.failingSince > BUNDLE_PATIENCE_MS
      ? [
          attentionCard(
            html`The trust bundle ${name} cannot be read`,
            html`<p>${reading.problem ?? ''}. Since ${relativeTime(new Date(reading.failingSince).toISOString(), at)}; the CAs before stay in force.</p>`,
          ),
        ]
      : [],
  )

const DAY_MS = 86_400_000

/** Everything that needs a person, and what somebody has put off. */
interface NeededAttention {
  readonly cards: readonly AttentionCard[]
  readonly refusals: readonly OpenRefusal[]
  readonly moreRefusals: boolean
  readonly deferred: readonly AttentionDeferral[]
}

async function neededAttention(
  dashboard: DashboardContext,
  facts: AdministrationFacts,
): Promise<NeededAttention> {
  const { value: deferred } = await perform(listDeferrals, dashboard.context, {}, facts)
  const all = [
    ...standingCards(dashboard, facts),
    ...(await openProposalCards(dashboard, facts)),
    ...(await servers(dashboard, facts)),
    ...(await secretUsed(dashboard, facts)),
    ...otherModels(dashboard, facts),
    ...(await endingCertificates(dashboard, facts)),
    ...sealingStopped(dashboard),
    ...editedTexts(dashboard, facts),
    ...(await lateAnchors(dashboard)),
    ...(await endingCas(dashboard, facts)),
    ...(await ownCa(dashboard, facts)),
    ...unreadBundles(dashboard, facts),
    ...(await keylessCallers(dashboard, facts)),
  ]
  const { refusals, more } = await openRefusals(dashboard, facts)
  const off = new Set(deferred.map(({ card }) => card))
  // Of what is hidden now the page says itself what it is.
  const titles = new Map([
    ...all.map(({ about, title }) => [cardId(about), plainText(title)] as const),
    ...refusals.map((one) => [cardId(aboutRefusal(one)), plainText(titleOfRefusal(one))] as const),
  ])
  return {
    cards: all.filter(({ about }) => !off.has(cardId(about))),
    refusals: refusals.filter((one) => !off.has(cardId(aboutRefusal(one)))),
    moreRefusals: more,
    deferred: deferred.map((one) => ({ ...one, title: titles.get(one.card) ?? one.title })),
  }
}

/**
 * Counts what Attention shows, for the navigation, anew when a row was recorded or seconds have passed. Null:
 * it cannot be told now.
 */
export function attentionCounter(
  dashboard: DashboardContext,
): (facts: AdministrationFacts, head: string) => Promise<number | null> {
  let counted: { readonly key: string; readonly at: number; readonly count: number } | null = null
  return async (facts, head) => {
    const key = JSON.stringify([head, facts.actor.id, facts.actor.capabilities, facts.actor.via])
    if (counted?.key === key && Math.abs(facts.at - counted.at) < COUNTED_MS) return counted.count
    try {
      const { cards, refusals } = await neededAttention(dashboard, facts)
      counted = { key, at: facts.at, count: cards.length + refusals.length }
      return counted.count
    } catch (error) {
      if (error instanceof Refusal) return null
      throw error
    }
  }
}

const COUNTED_MS = 2_000

/** GET /proxy: everything that needs a person, and nothing else. Empty means that all is well. */
export const attentionPage: DashboardPage = async (dashboard, facts) => {
  const { cards, refusals, moreRefusals, deferred } = await neededAttention(dashboard, facts)
  const now = new Date(facts.at).toISOString()
  const isWell = cards.length + refusals.length === 0
  return {
    title: 'Attention',
    section: '/proxy',
    body: html`${isWell && html`<p class="lead well">All is well, as of <time datetime="${now}">${now.slice(11, 19)} UTC</time>. Nothing needs a person.</p>`}
${cards.map((card) => renderCard(card, facts))}${refusalsCard(refusals, moreRefusals, facts)}${deferredCard(deferred, facts)}${await unnamedOrganisationCard(dashboard, facts)}
${!hasCapability(facts, 'admin.audit') && html`<p class="needs">Seeing refused calls needs <code>admin.audit</code>.</p>`}`,
  }
}

const renderCard = ({ title, body, about }: AttentionCard, facts: AdministrationFacts): HtmlFragment =>
  html`<section class="card needs-you"><h2>${title}</h2>${body}${notNowForm(about, title, facts)}</section>`

async function unnamedOrganisationCard(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  if (!hasCapability(facts, 'admin.settings')) return EMPTY_HTML
  const { value } = await perform(OPERATIONS.organisation.show, context, {}, facts)
  const isFixed = value.organisation_fixed_by !== null && value.trust_domain_fixed_by !== null
  return value.answered || isFixed
    ? EMPTY_HTML
    : html`<p class="faint">The organisation has not been named yet. Once somebody is enrolled, ids and certificates will say <code>${value.organisation}</code> for ever. <a href="/proxy/setup/organisation">Continue the setup</a></p>`
}

async function openProposalCards(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const query = { status: 'open' as const, limit: '20' }
  const { value, next } = await perform(OPERATIONS.proposals.list, context, { query }, facts)
  // Nobody hides an older one by proposing twenty others.
  const more = next
    ? [
        attentionCard(
          html`More changes are waiting for a second operator than are shown here`,
          html`<p>These are the newest. <code>sallyport operator proposals</code> lists all.</p>`,
        ),
      ]
    : []
  const cards = value.proposals.map((proposal) => {
    const { id, by, action, rehearsal, change } = proposal
    const isOwn = by === facts.actor.id
    const decide = (what: string, label: string): HtmlFragment =>
      button(facts, 'admin.read', `/proxy/proposals/${id}/${what}`, label)
    return attentionCard(
      html`${by} asks for a second operator: ${action}`,
      html`<p>${relativeTime(proposal.at, facts.at)}, until ${relativeTime(proposal.expires_at, facts.at)}. ${
        rehearsal === null ? 'It could not be rehearsed.' : html`It was rehearsed: <code>${rehearsal}</code>.`
      }</p><pre>${JSON.stringify(change, null, 2)}</pre>${readServer(change)}
<p>${isOwn ? html`<span class="faint">Another operator must confirm it.</span>` : decide('confirm', 'Confirm')} ${decide('decline', isOwn ? 'Withdraw' : 'Decline')}</p>`,
      `proposal ${id}`,
    )
  })
  return [...cards, ...more]
}

/** Links to the texts that an approval names by their digest alone. */
function readServer({ params }: Readonly<Record<string, unknown>>): HtmlFragment {
  const id = isObject(params) ? params.resource_id : undefined
  return typeof id === 'string'
    ? html`<p><a href="${pathOf('tools', id)}">Read what it is about before you confirm it</a></p>`
    : EMPTY_HTML
}

/** A definition that has been read and rejected waits for nobody. */
const isUnread = ({ state, flags }: { readonly state: string; readonly flags: readonly string[] }): boolean =>
  state === 'quarantined' && !flags.includes(REJECTED_FLAG)

/** Names the very texts: another change of the same tool is other news. */
const definitionsOf = (
  id: string,
  tools: readonly {
    readonly name: string
    readonly digest: string | null
    readonly pending_digest: string | null
  }[],
): string =>
  ['tools', id, ...tools.map((tool) => `${tool.name} ${tool.digest} ${tool.pending_digest}`)].join('\n')

async function servers(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const { value } = await perform(OPERATIONS.mcpResources.list, context, {}, facts)
  return value.flatMap(
    ({
      resource_id: id,
      name,
      tools,
      skipped_tools: skipped,
      last_error: error,
      pending_server_digest: words,
    }) => {
      const path = pathOf('tools', id)
      const lost = new Set(
        tools.filter(({ state, digest }) => state === 'gone' && digest !== null).map((tool) => tool.name),
      )
      const odd = skipped.filter((tool) => tool.name !== null && lost.has(tool.name))
      const unread = tools.filter(isUnread)
      const changed = unread.map((tool) => tool.name)
      const inPart = tools.filter((tool) => tool.state === 'approved' && tool.pending_digest !== null)
      const waits = html`<p>${changed.join(', ')} cannot be called until somebody has read and approved the changes.</p><p><a href="${path}">Read and approve</a></p>`
      return [
        ...(changed.length > 0
          ? [
              attentionCard(
                html`${name}: ${countWithNoun(changed.length, 'tool has', 'tools have')} changed`,
                waits,
                definitionsOf(id, unread),
              ),
            ]
          : []),
        ...(inPart.length > 0
          ? [
              attentionCard(
                html`${name}: ${countWithNoun(inPart.length, 'tool is', 'tools are')} listed in part`,
                html`<p>${inPart.map((tool) => tool.name).join(', ')}: an earlier version approved a part of each, and the rest is another by now. They can be called; callers see the approved part.</p><p><a href="${path}">Read and approve</a></p>`,
                definitionsOf(id, inPart),
              ),
            ]
          : []),
        ...(odd.length > 0
          ? [
              attentionCard(
                html`${name}: ${countWithNoun(odd.length, 'approved tool', 'approved tools')} cannot be used any more`,
                html`<ul>${odd.map((tool) => html`<li>${tool.name ?? ''}: ${tool.reason}</li>`)}</ul><p><a href="${path}">Look at it</a></p>`,
                ['odd', id, ...odd.map((tool) => `${tool.name} ${tool.reason}`)].join('\n'),
              ),
            ]
          : []),
        ...(words === null
          ? []
          : [
              attentionCard(
                html`${name} says something new about itself`,
                html`<p>Models still get the approved instructions until somebody has read and approved the changes.</p><p><a href="${path}">Read and approve</a></p>`,
                `words ${id} ${words}`,
              ),
            ]),
        ...(error === null
          ? []
          : [
              attentionCard(
                html`${name} cannot be read`,
                html`<p>${error}</p><p><a href="${path}">Look at it</a></p>`,
              ),
            ]),
      ]
    },
  )
}

async function secretUsed(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Promise<readonly AttentionCard[]> {
  const { value } = await perform(OPERATIONS.secret.show, context, {}, facts)
  const { last_used_at: used } = value
  if (used === null || facts.at - Date.parse(used) > DAY_MS || facts.actor.via === 'secret') return []
  return [
    attentionCard(
      html`The operator secret was used ${relativeTime(used, facts.at)}`,
      html`<p>It is for when nothing else works. <a href="/proxy/activity?principal=admin">What it did</a></p>`,
      `secret ${used}`,
    ),
  ]
}

/** Lists edits of the database that were met within a day. */
function editedTexts({ context }: DashboardContext, facts: AdministrationFacts): readonly AttentionCard[] {
  const lately = context.editedTexts.list().filter(({ at }) => facts.at - at < DAY_MS)
  if (lately.length === 0) return []
  return [
    attentionCard(
      html`Somebody has edited the database`,
      html`<ul>${lately.map(({ what, at }) => html`<li>${what}, met ${relativeTime(new Date(at).toISOString(), facts.at)}</li>`)}</ul><p>That is not what operators have set. Nothing is done by it. <code>sallyport verify</code> of the database compares everything.</p>`,
      ['edited', ...lately.map(({ what }) => what).toSorted()].join('\n'),
    ),
  ]
}

/** A ledger that is sealed no more. */
const sealingStopped = ({ context }: DashboardContext): readonly AttentionCard[] =>
  context.sealing.stopped
    ? [
        attentionCard(
          html`The ledger is not sealed any more`,
          html`<p>Calls go on and are recorded, but nobody can prove a row that is newer than the last checkpoint. If nobody has restored a copy of the database, somebody has written to the tables of the tree. <a href="/proxy/proof">Proof</a>, and <code>sallyport verify</code> of the database, say more.</p>`,
        ),
      ]
    : []

async function lateAnchors({ context }: DashboardContext): Promise<readonly AttentionCard[]> {
  const names = (await context.anchors()).filter(({ late }) => late).map(({ anchor }) => anchor)
  if (names.length === 0) return []
  return [
    attentionCard(
      html`${countWithNoun(names.length, 'anchor is', 'anchors are')} late`,
      html`<ul>${names.map((name) => html`<li>${name}</li>`)}</ul><p>Whoever owns the database could still rewrite the newest rows. <a href="/proxy/proof">Why</a></p>`,
      ['late', ...names].join('\n'),
    ),
  ]
}

/** POST /proxy/attention/not-now: puts a card off, or shows it again. */
export const notNowHandler = (dashboard: DashboardContext) =>
  formHandler(dashboard, deferCard, {
    given: ({ form }) => ({
      body: {
        card: form.get('card') ?? '',
        title: form.get('title') ?? '',
        reason: form.get('reason') ?? '',
        hours: form.get('hours') ?? '',
      },
    }),
    to: () => '/proxy',
    notice: 'deferred',
  })

export const proposalForms = (dashboard: DashboardContext) => {
  const { confirm, decline } = OPERATIONS.proposals
  const back = { given: inputById, to: (): string => '/proxy' }
  return {
    confirm: formHandler(dashboard, confirm, { ...back, notice: 'confirmed' }),
    decline: formHandler(dashboard, decline, { ...back, notice: 'declined' }),
  }
}
