import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { readerFailure } from '../../admin/audit/attention.ts'
import { listUnpricedModels } from '../../admin/costs/costs.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { listNearLimits, nearestPart } from '../../admin/limits/usage.ts'
import { perform } from '../../admin/operation/operation.ts'
import { escapeHidden } from '../../visible.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  countWithNoun,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { usedText } from '../limits/words.ts'

/** Something that needs a person. `about`: the same text as long as it is about the same. */
export interface AttentionCard {
  readonly title: HtmlFragment
  readonly body: HtmlFragment
  readonly about: string
}

export const attentionCard = (
  title: HtmlFragment,
  body: HtmlFragment,
  about = title.text.replaceAll(/<time[^>]*>[^<]*<\/time>/g, ''),
): AttentionCard => ({ title, body, about })

const DAY_MS = 86_400_000
const SHOWN = 20

const since = (at: number, now: number) => relativeTime(new Date(at).toISOString(), now)

/** The faults of this process and of what it depends on, as it knows them now. */
export function* standingCards(
  { standing }: Pick<DashboardContext, 'standing'>,
  { at }: Pick<AdministrationFacts, 'at'>,
): Generator<AttentionCard> {
  const { diskLow, clockOffS, ledgerFailing, rejected, providers, unserved } = standing()
  if (ledgerFailing)
    yield attentionCard(
      html`The ledger cannot be written`,
      html`<p>No call is served until it can: no row, no work. Look at the disk and the database of the gateway; it tries again each second.</p>`,
    )
  if (diskLow)
    yield attentionCard(
      html`The disk is low`,
      html`<p>Refusals have no rows of their own any more, so that calls have theirs. Make room, or move the database.</p>`,
    )
  if (clockOffS !== 0)
    yield attentionCard(
      html`The clock is wrong`,
      html`<p>It is ${countWithNoun(Math.abs(clockOffS), 'second')} ${clockOffS > 0 ? 'ahead of' : 'behind'} the database's. Proofs and certificates that are good are refused here, and others are believed too long. Set the clocks of all machines by a time service.</p>`,
      'clock',
    )
  if (rejected)
    yield attentionCard(
      html`The configuration did not load`,
      html`<p>The one before stays in force. ${since(rejected.at, at)}:</p><pre>${rejected.message}</pre><p>Mend the file, and reload.</p>`,
      `rejected ${rejected.message}`,
    )
  for (const { name, keyMissing, keyVariable, failingSince, problem } of providers) {
    if (keyMissing)
      yield attentionCard(
        html`The provider ${name} has no key`,
        html`<p>Its calls are refused with <code>provider_not_configured</code>. ${keyVariable === null ? html`Set <code>api_key</code> in <code>50-llm.yaml</code>.` : html`Set <code>${keyVariable}</code>, and start again.`}</p>`,
      )
    if (failingSince !== null)
      yield attentionCard(
        html`The provider ${name} fails`,
        html`<p>Since ${since(failingSince, at)}: ${problem ?? 'it did not answer'}.</p>`,
      )
  }
  const asked = unserved.filter((one) => at - one.at < DAY_MS)
  if (asked.length > 0)
    yield attentionCard(
      html`${countWithNoun(asked.length, 'model')} that nobody serves`,
      html`<ul>${asked.slice(0, SHOWN).map(({ asked: model, calls, first, at: last, requestId }) => html`<li><code>${model}</code>: ${countWithNoun(calls, 'call')}, the first ${since(first, at)}, <a href="/proxy/activity/${requestId}">the last</a> ${since(last, at)}</li>`)}</ul><p>Name it under <code>models</code> or <code>aliases</code> of a provider in <code>50-llm.yaml</code>, or tell the callers which models there are.</p>`,
      ['unserved', ...asked.map(({ asked: model }) => model).toSorted()].join('\n'),
    )
}

/** Providers that ran another model than they were asked for, within a day: the judged one did not run. */
export function* otherModels(
  { modelMismatches }: DashboardContext,
  facts: AdministrationFacts,
): Generator<AttentionCard> {
  if (!hasCapability(facts, 'admin.audit')) return
  const lately = modelMismatches.list().filter(({ at }) => facts.at - at < DAY_MS)
  if (lately.length === 0) return
  const lines = lately
    .slice(0, SHOWN)
    .map(
      ({ provider, asked, answered, calls, at, requestId }) =>
        html`<li>${provider} was asked for <code>${escapeHidden(asked)}</code> and ran <code>${escapeHidden(answered)}</code>: ${countWithNoun(calls, 'call', 'calls')}, <a href="/proxy/activity/${requestId}">the last one</a> ${since(at, facts.at)}</li>`,
    )
  yield attentionCard(
    html`A different model answered than was asked for`,
    html`<ul>${lines}</ul><p>Rules about models were applied to the first name. If both are the same model, say so with <code>answered_by</code> in <code>50-llm.yaml</code>; if not, check the settings of the provider, and <code>refuse_members</code>.</p>`,
    ['other models', ...lately.map(({ provider, asked, answered }) => `${provider} ${asked} ${answered}`)]
      .toSorted()
      .join('\n'),
  )
}

/** The time that a followed bundle may fail before a person is needed. ms. */
const BUNDLE_PATIENCE_MS = 900_000

/** The followed trust bundles that could not be read for a while. */
export function* unreadBundles(
  { context }: DashboardContext,
  { at }: AdministrationFacts,
): Generator<AttentionCard> {
  for (const [name, reading] of context.trustBundles())
    if (reading?.failingSince && at - reading.failingSince > BUNDLE_PATIENCE_MS)
      yield attentionCard(
        html`The trust bundle ${name} cannot be read`,
        html`<p>${reading.problem ?? ''}. Since ${since(reading.failingSince, at)}; the CAs before stay in force.</p>`,
      )
}

/** Lists models of the last 30 days that have no price: their calls count as nothing in any sum. */
export async function* unpricedModels(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  if (!hasCapability(facts, 'admin.audit')) return
  const { value } = await perform(listUnpricedModels, context, { query: { most: SHOWN } }, facts)
  const { models, calls: all } = value
  if (models.length === 0) return
  yield attentionCard(
    html`Models without a price`,
    html`<ul>${models.map(({ provider, model, calls }) => html`<li><code>${escapeHidden(model)}</code> <span class="faint">${provider}</span>: ${countWithNoun(calls, 'call')}</li>`)}</ul><p>${countWithNoun(all, 'call')} of the last 30 days count as nothing in <a href="/proxy/costs">Costs</a>. Give each a price, or <code>free: true</code>, in <code>55-prices.yaml</code>.</p>`,
    ['unpriced', ...models.map(({ provider, model }) => `${provider} ${model}`).toSorted()].join('\n'),
  )
}

const PASSED = html` <span class="badge warn">strict, and passed</span> It was lowered, or a provider has used more than it was asked for.`

/** Lists limits of which four fifths are used. One that is used up is other news. */
export async function* nearLimits(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const { limits } = (await perform(listNearLimits, context, {}, facts)).value
  if (limits.length === 0) return
  const lines = limits
    .slice(0, SHOWN)
    .flatMap(({ limit, meters, resets_at: resets }) =>
      (meters ?? []).map(
        (meter) =>
          html`<li><a href="${pathOf('limits', limit.limit_id)}">${limit.name}</a>${meter.principal !== null && html` (${meter.principal_name ?? meter.principal})`}: ${usedText(limit, meter)}${resets !== null && html` <span class="faint">begins again ${relativeTime(resets, facts.at)}</span>`}${limit.strict && meter.spent > meter.amount && PASSED}</li>`,
      ),
    )
  const about = limits.map(
    (one) => `${one.limit.limit_id} ${one.resets_at ?? ''} ${nearestPart(one) < 1 ? 'near' : 'up'}`,
  )
  yield attentionCard(
    html`${countWithNoun(limits.length, 'limit is', 'limits are')} 80 % used or more`,
    html`<ul>${lines}</ul><p><a href="/proxy/limits">Limits</a></p>`,
    ['limits', ...about.toSorted()].join('\n'),
  )
}

export async function* secretUsed(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  const { value } = await perform(OPERATIONS.secret.show, context, {}, facts)
  const { last_used_at: used } = value
  if (used === null || facts.at - Date.parse(used) > DAY_MS || facts.actor.via === 'secret') return
  yield attentionCard(
    html`The operator secret was used ${relativeTime(used, facts.at)}`,
    html`<p>It is for when nothing else works. <a href="/proxy/activity?principal=admin">What it did</a></p>`,
    `secret ${used}`,
  )
}

/** Lists edits of the database that were met within a day. */
export function* editedTexts(
  { context }: DashboardContext,
  facts: AdministrationFacts,
): Generator<AttentionCard> {
  const lately = context.editedTexts.list().filter(({ at }) => facts.at - at < DAY_MS)
  if (lately.length === 0) return
  yield attentionCard(
    html`Somebody has edited the database`,
    html`<ul>${lately.map(({ what, at }) => html`<li>${what}, met ${since(at, facts.at)}</li>`)}</ul><p>That is not what operators have set. Nothing is done by it. <code>sallyport verify</code> of the database compares everything.</p>`,
    ['edited', ...lately.map(({ what }) => what).toSorted()].join('\n'),
  )
}

/** A ledger that is sealed no more. */
export function* sealingStopped({ context }: DashboardContext): Generator<AttentionCard> {
  if (context.sealing.stopped)
    yield attentionCard(
      html`The ledger is not sealed any more`,
      html`<p>Calls go on and are recorded, but nobody can prove a row that is newer than the last checkpoint. If nobody has restored a copy of the database, somebody has written to the tables of the tree. <a href="/proxy/proof">Proof</a>, and <code>sallyport verify</code> of the database, say more.</p>`,
    )
}

export async function* lateAnchors({ context }: DashboardContext): AsyncGenerator<AttentionCard> {
  const names = (await context.anchors()).filter(({ late }) => late).map(({ anchor }) => anchor)
  if (names.length === 0) return
  yield attentionCard(
    html`${countWithNoun(names.length, 'anchor is', 'anchors are')} late`,
    html`<ul>${names.map((name) => html`<li>${name}</li>`)}</ul><p>Whoever owns the database could still rewrite the newest rows. <a href="/proxy/proof">Why</a></p>`,
    ['late', ...names].join('\n'),
  )
}

/** Tells of those who should be told of rows, and cannot be. */
export async function* untoldTargets(
  { standing, context }: DashboardContext,
  { at }: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  for (const [name, reader] of standing().told) {
    const failure = await readerFailure(context, reader)
    if (failure === null) continue
    yield attentionCard(
      html`${name} cannot be told of what happens`,
      html`<p>${escapeHidden(failure.error)}: since ${relativeTime(failure.since, at)}. It is tried again until nobody needs it any more.</p>`,
      `told ${name} ${failure.since}`,
    )
  }
}

/** Tells of an archive that fails, is overdue, or waits for somebody. */
export async function* archiveCards(
  { context: { archive } }: DashboardContext,
  { at }: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  if (!archive.options) return
  const { overdue, waiting, last, folder } = await archive.alarm(at)
  const more = html`<p><a href="/proxy/archive">Archive</a></p>`
  if (typeof last?.problem === 'string')
    yield attentionCard(
      html`The archive fails`,
      html`<p>${last.problem}</p>${more}`,
      `archive ${last.problem}`,
    )
  else if (overdue && waiting === 0)
    yield attentionCard(
      html`Rows are older than ${archive.options.keep}, and not archived`,
      html`<p>They are a day older than that, and in the database still.</p>${more}`,
    )
  if (typeof folder?.problem === 'string')
    yield attentionCard(
      html`The folder of the archive cannot be read here`,
      html`<p>${folder.problem}</p>${more}`,
    )
  // One may be that which is being written.
  if (folder && folder.unknown.length > 1)
    yield attentionCard(
      html`The database is older than its archive`,
      html`<p>It does not know ${folder.unknown.slice(0, SHOWN).map((file) => html`<code>${file}</code> `)}: it is a copy from before them. Restore each.</p>${more}`,
      ['unknown', ...folder.unknown].join('\n'),
    )
  if (waiting > 0)
    yield attentionCard(
      html`${countWithNoun(waiting, 'segment waits', 'segments wait')} for a confirmed copy`,
      html`<p>Copy the files elsewhere, and confirm each: its rows are in the database until then.</p>${more}`,
    )
}

/** Tells of sinks that have been behind, or failing, for 5 minutes. */
export async function* exportCards(
  { context: { exports } }: DashboardContext,
  { at }: AdministrationFacts,
): AsyncGenerator<AttentionCard> {
  for (const { name, lag_rows: rows, error, late } of await exports.list(at)) {
    if (!late) continue
    yield attentionCard(
      html`The sink ${name} does not get its rows`,
      html`<p>${countWithNoun(rows, 'row waits', 'rows wait')} for it. ${error ?? ''}</p>
        <p><a href="/proxy/exports">Exports</a></p>`,
      `export ${name}`,
    )
  }
}
