import type { Json } from '../../gateway.ts'
import {
  gated,
  inDetail,
  indexOf,
  isAllowed,
  isChange,
  isDecision,
  isOutcome,
  ofOne,
  type Rewrite,
} from './rewriting.ts'

/** What nothing but a kept checkpoint finds. */
export const SILENT: Readonly<Record<string, Rewrite>> = {
  'another model': ofOne(
    (row) => row.model !== null,
    (row) => ({ ...row, model: 'gpt-4' }),
    0,
  ),
  'another outcome': ofOne(
    (row) => isOutcome(row) && row.status !== 'unknown',
    (row) => ({ ...row, status: row.status === 'error' ? 'success' : 'error' }),
    0,
  ),
  'another size of an answer': ofOne(isOutcome, (row) => inDetail(row, { latency_ms: 4_711 }), 0),
  'another commitment': ofOne(
    (row) => isDecision(row) && row.detail.body_sha256 !== undefined,
    (row) => inDetail(row, { body_sha256: 'a'.repeat(64) }),
    0,
  ),
  'another version': ofOne(
    () => true,
    (row) => ({ ...row, version: '9.9.9' }),
    0,
  ),
  'another provider': ofOne(isOutcome, (row) => ({ ...row, provider: 'nobody' }), 0),
  'a text of other letters': ofOne(
    () => true,
    (row) => ({ ...row, version: 'é𝄞\u2028\u007f"\\\u0001' }),
    0,
  ),
  'a capability that nothing demands': ofOne(
    (row) => isChange(row) && row.detail.capabilities.length > 0,
    (row) => inDetail(row, { capabilities: [...row.detail.capabilities, 'zzz'] }),
    0,
  ),
  'another reason of strangers': ofOne(
    ({ action }) => action === 'auth.refused',
    (row) => inDetail(row, { count: 1 }),
    0,
  ),
  'two outcomes have changed places': (rows, { one }) => {
    const pairs = rows.flatMap((row, a) =>
      rows.flatMap((other, b) => {
        const both =
          a < b &&
          isOutcome(row) &&
          isOutcome(other) &&
          row.action === other.action &&
          row.status !== other.status
        return both && row.status !== 'unknown' && other.status !== 'unknown' ? [[a, b] as const] : []
      }),
    )
    const pair = one(pairs)
    if (!pair) return null
    const [a, b] = pair
    const [first, second] = [rows[a] as Json, rows[b] as Json]
    return {
      rows: rows.with(a, { ...first, status: second.status }).with(b, { ...second, status: first.status }),
      alone: 0,
    }
  },
  'a row of a stranger more': (rows, { below }) => {
    const [at, like] = [1 + below(rows.length), rows.find(({ action }) => action === 'config.loaded')]
    const stream = rows[at - 1]?.stream
    return like
      ? {
          rows: rows.toSpliced(at, 0, { ...like, v: 2, stream, action: 'config.rejected', detail: {} }),
          alone: 0,
        }
      : null
  },
  'rows that say nothing of authority are gone': (rows, choose) => {
    const at = indexOf(
      rows,
      choose,
      ({ action, v }) => v === 2 && ['auth.refused', 'admin.sign_in', 'service.stopped'].includes(action),
    )
    return at === null ? null : { rows: rows.toSpliced(at, 1), alone: 0 }
  },
  'a call is gone, decision and outcome': (rows, choose) => {
    const at = indexOf(rows, choose, (row) => isAllowed(row))
    const id = at === null ? null : rows[at]?.request_id
    return at === null ? null : { rows: rows.filter(({ request_id: of }) => of !== id), alone: 0 }
  },
  'a refusal is gone': (rows, choose) => {
    const at = indexOf(rows, choose, (row) => isDecision(row) && row.status === 'denied')
    return at === null ? null : { rows: rows.toSpliced(at, 1), alone: 0 }
  },
  'rows of two streams are woven otherwise': (rows, choose) => {
    const calm = (row: Json): boolean => row.v === 2 && !gated(row) && /^(auth|admin)\./.test(row.action)
    const at = indexOf(
      rows,
      choose,
      (row, index) => calm(row) && index > 0 && rows[index - 1]?.stream !== row.stream,
    )
    if (at === null) return null
    return { rows: rows.with(at, rows[at - 1] as Json).with(at - 1, rows[at] as Json), alone: 0 }
  },
  'the end is cut off': (rows, { below }) => ({
    rows: rows.slice(0, Math.max(1, rows.length - 1 - below(5))),
    alone: 0,
  }),
}
