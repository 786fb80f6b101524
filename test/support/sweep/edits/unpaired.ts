import type { Json } from '../../gateway.ts'
import {
  inDetail,
  indexOf,
  isAllowed,
  isChange,
  isJudged,
  isOutcome,
  later,
  ofOne,
  type Rewrite,
  restartsBehind,
  without,
} from './rewriting.ts'

/** What the rows themselves contradict: rows that are gone, moved or there twice, and changes. */
export const UNPAIRED: Readonly<Record<string, Rewrite>> = {
  'a decision is gone, and its outcome is left': (rows, choose) => {
    const at = indexOf(
      rows,
      choose,
      (row, index) =>
        isAllowed(row) &&
        later(rows, index, (other) => isOutcome(other) && other.request_id === row.request_id),
    )
    return at === null ? null : { rows: rows.toSpliced(at, 1), alone: 5 }
  },
  'an outcome is gone, and its process began anew': (rows, choose) => {
    const decided = (id: string): number => rows.findIndex((row) => isAllowed(row) && row.request_id === id)
    const at = indexOf(rows, choose, (row) => isOutcome(row) && restartsBehind(rows, decided(row.request_id)))
    return at === null ? null : { rows: rows.toSpliced(at, 1), alone: 5 }
  },
  'an outcome comes twice': (rows, choose) => {
    const at = indexOf(rows, choose, isOutcome)
    return at === null ? null : { rows: rows.toSpliced(at, 0, rows[at] as Json), alone: 5 }
  },
  'a decision comes twice': (rows, choose) => {
    const at = indexOf(rows, choose, isAllowed)
    return at === null ? null : { rows: rows.toSpliced(at, 0, rows[at] as Json), alone: 5 }
  },
  'two calls under one request': (rows, choose) => {
    const a = indexOf(
      rows,
      choose,
      (row, index) => isAllowed(row) && isAllowed(rows[index + 1] ?? { action: '' }),
    )
    return a === null
      ? null
      : { rows: rows.with(a + 1, { ...rows[a + 1], request_id: rows[a]?.request_id }), alone: 5 }
  },
  'an outcome before its decision': (rows, choose) => {
    const at = indexOf(rows, choose, isAllowed)
    const to =
      at === null
        ? -1
        : rows.findIndex(
            (row) =>
              isOutcome(row) && row.request_id === rows[at]?.request_id && row.stream === rows[at]?.stream,
          )
    if (at === null || to < 0) return null
    return { rows: rows.with(at, rows[to] as Json).with(to, rows[at] as Json), alone: 5 }
  },
  'an outcome of another stream': (rows, choose) => {
    const at = indexOf(
      rows,
      choose,
      (row, index) =>
        isOutcome(row) &&
        row.status !== 'unknown' &&
        later(rows.slice(0, index).toReversed(), -1, ({ stream }) => stream !== row.stream),
    )
    const other =
      at === null ? undefined : rows.slice(0, at).find(({ stream }) => stream !== rows[at]?.stream)
    return at === null || !other
      ? null
      : { rows: rows.with(at, { ...rows[at], stream: other.stream }), alone: 5 }
  },
  'a change is gone, and another one follows it': (rows, choose) => {
    const follows = (index: number) =>
      later(rows, index, (row) => isChange(row) && row.detail.subject === rows[index]?.detail.subject)
    const at = indexOf(rows, choose, (row, index) => isChange(row) && follows(index))
    return at === null ? null : { rows: rows.toSpliced(at, 1), alone: 5 }
  },
  'a change has another revision': ofOne(
    isChange,
    (row, { below }) => inDetail(row, { revision: row.detail.revision + 1 + below(4) }),
    5,
  ),
  'a change comes twice': (rows, choose) => {
    const at = indexOf(rows, choose, isChange)
    return at === null ? null : { rows: rows.toSpliced(at, 0, rows[at] as Json), alone: 5 }
  },
  'a change without its state': ofOne(
    isChange,
    (row, { one }) =>
      without(
        row,
        one(['subject', 'revision', 'capabilities', 'is_active', 'thumbprints', 'dpop_jkts']) ?? '',
      ),
    5,
  ),
  'a change with a state that is none': ofOne(
    isChange,
    (row, { one }) =>
      inDetail(row, {
        [one(['subject', 'revision', 'capabilities', 'is_active', 'thumbprints', 'dpop_jkts']) ?? '']: one([
          null,
          {},
          [1],
          -1,
          [[]],
          [['a']],
          [['a', 5]],
          [['a', 'soon']],
        ]),
      }),
    5,
  ),
  'a grant is taken back before the call': (rows, choose) => {
    const at = indexOf(rows, choose, (row) => isAllowed(row) && row.detail.authority.demanded.length > 0)
    if (at === null) return null
    const from = rows.findLastIndex(
      (row, index) => index < at && isChange(row) && row.detail.subject === rows[at]?.principal_id,
    )
    return from < 0
      ? null
      : { rows: rows.with(from, inDetail(rows[from], { capabilities: ['other'] })), alone: 5 }
  },
  'a configuration is gone': (rows, choose) => {
    const used = (digest: string) => rows.some((row) => isJudged(row) && row.config_digest === digest)
    const at = indexOf(
      rows,
      choose,
      ({ action, config_digest: digest, v }) => action === 'config.loaded' && v === 2 && used(digest),
    )
    if (at === null) return null
    const digest = rows[at]?.config_digest
    return {
      rows: rows.filter((row) => row.action !== 'config.loaded' || row.config_digest !== digest),
      alone: 5,
    }
  },
  'a configuration that is none': ofOne(
    ({ action, v }) => action === 'config.loaded' && v === 2,
    (row, { one }) =>
      inDetail(
        row,
        one([
          { checks: null },
          { checks: [1] },
          { checks: [{ name: 'x' }] },
          { egress_dpop_mode: 'maybe' },
          { no_downgrade: 'no' },
          { enforce_tools_call: null },
        ]) ?? {},
      ),
    5,
  ),
}
