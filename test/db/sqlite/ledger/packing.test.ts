import fc from 'fast-check'
import t from 'tap'
import { draftOf } from '../../../../db/ledger/record/draft.ts'
import type { LedgerWork, WorkResult } from '../../../../db/ledger/record/writer.ts'
import { packBatch, packResults, unpackBatch, unpackResults } from '../../../../db/sqlite/ledger/packing.ts'
import { entry, ORIGIN } from '../../../support/db/scratch-ledger.ts'

const text = fc.string({ unit: 'binary', maxLength: 8 })
const optional = fc.option(text, { nil: null })
const draft = fc
  .record({
    request_id: optional,
    principal_id: optional,
    principal_type: optional,
    action: text,
    status: text,
    tool: optional,
    model: optional,
    provider: optional,
    cert_thumbprint: optional,
    dpop_jkt: optional,
    config_digest: text,
    detail: fc.dictionary(fc.constantFrom('a', 'b'), text),
  })
  .map((values) => draftOf(entry(values), ORIGIN))
const statement = fc.record(
  { sql: text, parameters: fc.array(fc.constantFrom(null, 1n, 0.5, 'x')), changes: fc.nat() },
  { requiredKeys: ['sql', 'parameters'] },
)
const assertion = fc.record({ sql: text, parameters: fc.array(fc.oneof(text, fc.maxSafeInteger())) })
const count = fc.maxSafeInteger()
const meter = {
  ...{ limit: text, who: text, span: text, took: count },
  refill: fc.record({ rate: count, periodMs: count, at: count }),
}
const keys = ['limit', 'who', 'span', 'took'] as const
const reservation = fc.record(
  { ...meter, most: count, refuses: fc.boolean() },
  { requiredKeys: [...keys, 'most', 'refuses'] },
)
const settlement = fc.record({ ...meter, charged: count }, { requiredKeys: [...keys, 'charged'] })
const work: fc.Arbitrary<LedgerWork> = fc.record({
  assertions: fc.array(assertion, { maxLength: 3 }),
  statements: fc.array(statement, { maxLength: 2 }),
  reservations: fc.array(reservation, { maxLength: 2 }),
  settlements: fc.array(settlement, { maxLength: 2 }),
  drafts: fc.array(draft, { maxLength: 3 }),
})

const NOTHING = { assertions: [], statements: [], reservations: [], settlements: [] }

t.test(
  'docs/ledger.md#appending: a batch is the same on the writer’s side, whatever its texts hold',
  async (t) => {
    fc.assert(
      fc.property(fc.array(work, { maxLength: 5 }), (batch) => {
        t.same(unpackBatch(structuredClone(packBatch(batch))), batch)
        return true
      }),
      { numRuns: 300 },
    )
    const { values, ...rest } = packBatch([{ ...NOTHING, drafts: [] }])
    t.throws(() => unpackBatch({ ...rest, values: [...values, 1] }), /a batch of 5 values came with 6/)
  },
)

t.test('docs/ledger.md#appending: each unit hears of its own rows, and of its own refusal', async (t) => {
  const unit = (rows: number): LedgerWork => ({
    ...NOTHING,
    drafts: Array.from({ length: rows }, () => draftOf(entry(), ORIGIN)),
  })
  const sealed = (...seqs: number[]): WorkResult => ({
    sealed: seqs.map((seq) => ({ stream: 'main', seq, hash: String(seq % 10).repeat(64) })),
  })
  const refused: WorkResult = { refused: 'duplicate', message: 'there already' }
  const cases: readonly (readonly [readonly LedgerWork[], readonly WorkResult[]])[] = [
    [
      [unit(1), unit(2), unit(0), unit(3), unit(1)],
      [sealed(41), refused, sealed(), sealed(42, 43, 44), sealed(45)],
    ],
    [[unit(1)], [refused]],
    [[], []],
  ]
  for (const [batch, results] of cases)
    t.same(unpackResults(structuredClone(packResults(results)), batch), results)
  t.throws(() => unpackResults(packResults([sealed(1)]), [unit(2)]), /64 characters of hashes for 2 rows/)
})
