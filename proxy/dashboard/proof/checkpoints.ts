import type { OPERATIONS } from '../../admin/http/operations.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'
import {
  copyableCode,
  dataTable,
  EMPTY_HTML,
  factList as factsOf,
  type HtmlFragment,
  html,
  htmlIf,
  relativeTime,
} from '../frame/parts.ts'

export type LogStatus =
  Awaited<ReturnType<(typeof OPERATIONS.audit.log)['run']>> extends OperationResult<infer Value>
    ? OperationResult<Value>['value']
    : never

/** Names the anchors that hold a checkpoint, and how many rows each has seen so. */
export function seenOutside(anchors: LogStatus['anchors']): HtmlFragment {
  const seen = anchors.filter(({ size }) => size > 0)
  if (seen.length === 0) return html`by nobody outside`
  const names = seen.map(({ anchor, size }) => `${anchor} (${size.toLocaleString('en')} rows)`)
  return html`by ${names.join(', ')}`
}

/** The newest checkpoint of the log, and the anchors that should keep it. */
export function checkpointsCard({ log, unsealed, anchors }: LogStatus, now: number): HtmlFragment {
  if (!log)
    return html`<section class="card"><h2>Checkpoints</h2><p>Nothing is sealed yet: this takes a second.</p></section>`
  const rows = anchors.map(
    ({ anchor, size, kept_at: kept, error, failed_at: failed, late }) =>
      html`<tr><td>${anchor}${htmlIf(late, () => html` <span class="badge warn">late</span>`)}</td><td class="number">${size.toLocaleString('en')}</td><td>${relativeTime(kept, now)}</td><td>${error === null ? EMPTY_HTML : html`${error}, ${relativeTime(failed, now)}`}</td></tr>`,
  )
  return html`<section class="card" id="checkpoints"><h2>Checkpoints</h2>${factsOf([
    ['Log', copyableCode(log.origin)],
    ['Verifier key', copyableCode(log.key)],
    ['Sealed rows', log.size.toLocaleString('en')],
    ['Not sealed yet', unsealed.toLocaleString('en')],
    ['Seen outside', seenOutside(anchors)],
    ['Signed', relativeTime(log.signed_at, now)],
    ['Root', copyableCode(log.root)],
  ])}<p class="faint">Give the verifier key to auditors and owners of agents now, and not through this gateway: a key that comes later proves less.</p>
${dataTable(['Anchor', 'Rows', 'Kept', 'Failed'], rows, html`<p>Nobody keeps checkpoints elsewhere, so whoever owns the database could rewrite its history.</p><p>Name anchors in <code>45-proofs.yaml</code>: <code class="copy" tabindex="0">anchors: [{file: /mnt/other/sallyport.checkpoints}]</code></p>`)}</section>`
}
