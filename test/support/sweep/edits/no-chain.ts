import { inDetail, mayBegin, ofOne, type Rewrite } from './rewriting.ts'

/** What a chain cannot be, whatever its hashes. */
export const NO_CHAIN: Readonly<Record<string, Rewrite>> = {
  'a stream without its beginning': (rows, { one }) => {
    const streams = [...new Set(rows.map(({ stream }) => stream))]
    const stream = one(
      streams.filter((name) => {
        const [, second] = rows.filter((row) => row.stream === name)
        return second && !mayBegin(second) && rows.find((row) => row.stream === name).v === 2
      }),
    )
    if (stream === undefined) return null
    const at = rows.findIndex((row) => row.stream === stream)
    return { rows: rows.toSpliced(at, 1), alone: 2 }
  },
  'a row of version 1 behind rows of version 2': ofOne(
    (row, index, rows) => rows.slice(0, index).some(({ stream, v }) => stream === row.stream && v === 2),
    (row) => ({ ...row, v: 1 }),
    2,
  ),
  'a row of version 3': ofOne(
    () => true,
    (row) => ({ ...row, v: 3 }),
    2,
  ),
  'a row of no version': ofOne(
    () => true,
    (row, { one }) => ({ ...row, v: one([0, -1, null, true, '2', [2]]) }),
    2,
  ),
  'a fork: a row moved to a stream that never began': ofOne(
    (row) => row.v === 2 && !mayBegin(row),
    (row) => ({ ...row, stream: 'r0000000000000000' }),
    2,
  ),
  'a column of another type': ofOne(
    () => true,
    (row, { one }) => ({
      ...row,
      [one([
        'model',
        'tool',
        'version',
        'recorded_at',
        'principal_id',
        'cert_thumbprint',
        'config_digest',
        'provider',
      ]) ?? '']: one([1, true, {}, []]),
    }),
    2,
  ),
  'a null that cannot be': ofOne(
    () => true,
    (row, { one }) => ({ ...row, [one(['version', 'recorded_at', 'config_digest', 'status']) ?? '']: null }),
    2,
  ),
  'a detail that is none': ofOne(
    () => true,
    (row, { one }) => ({ ...row, detail: one([null, [], 'x', 1, true]) }),
    2,
  ),
  'a column more': ofOne(
    () => true,
    (row) => ({ ...row, leaf: 'x' }),
    2,
  ),
  'a detail with a fraction': ofOne(
    () => true,
    (row) => inDetail(row, { zz: 1.5 }),
    2,
  ),
  'a detail with a number beyond 2^53': ofOne(
    () => true,
    (row) => inDetail(row, { zz: 2 ** 53 }),
    2,
  ),
  'a time of another form': ofOne(
    () => true,
    (row, { one }) => ({
      ...row,
      recorded_at: one([
        'now',
        '',
        '2026-01-02',
        '2026-01-02T03:04:05Z',
        '2026-01-02T03:04:05.006+01:00',
        '2026-01-02T03:04:05.006z',
        '１026-01-02T03:04:05.006Z',
      ]),
    }),
    2,
  ),
}

const nested = (depth: number): unknown => {
  let value: unknown = 1
  for (let level = 0; level < depth; level += 1) value = [value]
  return value
}

/** What no writer writes, since it is longer or deeper than a row may be. */
export const BEYOND: Readonly<Record<string, Rewrite>> = Object.fromEntries(
  [17, 100, 900, 1_100].map((depth) => [
    `a detail ${depth} deep`,
    ofOne(
      () => true,
      (row) => inDetail(row, { zz: nested(depth) }),
      2,
    ),
  ]),
)
