import type { AttentionDeferral } from '../../../db/operators/deferrals.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { deferCard, listDeferrals, type OpenRefusal } from '../../admin/audit/attention.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import { EMPTY_HTML, type HtmlFragment, hasCapability, html } from '../frame/parts.ts'
import {
  endingCas,
  endingCertificates,
  keylessCallers,
  openApprovals,
  openProposals,
  ownCa,
  servers,
} from './cards.ts'
import {
  aboutRefusal,
  cardId,
  deferredCard,
  notNowForm,
  openRefusals,
  plainText,
  refusalsCard,
  titleOfRefusal,
} from './refusals.ts'
import {
  type AttentionCard,
  archiveCards,
  editedTexts,
  exportCards,
  lateAnchors,
  nearLimits,
  otherModels,
  sealingStopped,
  secretUsed,
  standingCards,
  unpricedModels,
  unreadBundles,
  untoldTargets,
} from './standing.ts'

/** Everything that needs a person but refusals, in this order. */
const SOURCES = [
  ...[
    standingCards,
    openApprovals,
    openProposals,
    servers,
    secretUsed,
    otherModels,
    unpricedModels,
    nearLimits,
    endingCertificates,
    sealingStopped,
  ],
  ...[
    editedTexts,
    lateAnchors,
    archiveCards,
    exportCards,
    untoldTargets,
    endingCas,
    ownCa,
    unreadBundles,
    keylessCallers,
  ],
]

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
  const all: AttentionCard[] = []
  for (const cardsOf of SOURCES) for await (const card of cardsOf(dashboard, facts)) all.push(card)
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

/** POST /proxy/attention/not-now: puts a card off, or shows it again. */
export const notNowHandler = (dashboard: DashboardContext) =>
  formHandler(dashboard, deferCard, {
    ...{ fields: ['card', 'title', 'reason', 'hours'], to: '/proxy', notice: 'deferred' },
  })

export const proposalForms = (dashboard: DashboardContext) => {
  const { confirm, decline } = OPERATIONS.proposals
  return {
    confirm: formHandler(dashboard, confirm, { to: '/proxy', notice: 'confirmed' }),
    decline: formHandler(dashboard, decline, { to: '/proxy', notice: 'declined' }),
  }
}
