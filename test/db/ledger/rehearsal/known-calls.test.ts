import fc from 'fast-check'
import t from 'tap'
import { CallKindCache, leafPartTexts, partsOfCall } from '../../../../db/ledger/rehearsal/known-calls.ts'
import { chainOf, decided, decidedTool } from '../../../support/db/history.ts'

const text = fc.constantFrom('a', 'b', 'é', '"path":"', '\\"dpop_jkt":', '1')

/** Calls that differ little, in what makes their kind and in what does not. */
const call = fc
  .record({
    isTool: fc.boolean(),
    model: text,
    principal: fc.constantFrom('acme::bot', 'acme::bat', 'acme::bot2'),
    jkt: fc.constantFrom(null, 'k'.repeat(43)),
    revision: fc.constantFrom(1, 2, 10),
    session: fc.option(text, { nil: undefined }),
    bytes: fc.constantFrom(1, 22, 333),
    status: fc.constantFrom('allowed', 'allowed', 'denied', 'success'),
  })
  .map(({ isTool, model, principal, jkt, revision, session, bytes, status }) => {
    const more = { body_bytes: bytes, ...(session !== undefined && { session_id: session }) }
    const values = { principal_id: principal, dpop_jkt: jkt, status, authority: { revision }, more }
    return isTool ? decidedTool(bytes, { ...values, tool: model }) : decided(bytes, { ...values, model })
  })

const kindBySearch = (leaf: string): string | null => {
  const parts = partsOfCall(leaf)
  return parts && JSON.stringify(leafPartTexts(leaf, parts))
}

t.test('calls are of one kind where the parts that make it are the same, and only there', (t) => {
  fc.assert(
    fc.property(fc.array(call, { maxLength: 60 }), (entries) => {
      const known = new CallKindCache<string>()
      const names = new Map<object, string>()
      for (const { leaf } of chainOf(entries)) {
        const [kind, name] = [known.of(leaf), kindBySearch(leaf)]
        if ((kind === null) !== (name === null)) return false
        if (kind === null || name === null) continue
        const before = names.get(kind)
        if (before === undefined ? [...names.values()].includes(name) : before !== name) return false
        names.set(kind, name)
      }
      return true
    }),
    { numRuns: 500 },
  )
  t.end()
})

t.test('the fates of one principal are forgotten alone, or all', (t) => {
  const known = new CallKindCache<string>()
  const [one, other] = chainOf([decided(1), decided(2, { principal_id: 'acme::other' })])
  const kinds = [one, other].map((row) => known.of(row?.leaf ?? ''))
  for (const [place, kind] of kinds.entries()) if (kind) known.judged(`p${place}`, kind, 'fate')
  known.forget('p0')
  t.same(
    kinds.map((kind) => kind?.fate),
    [null, 'fate'],
  )
  known.forget(null)
  t.equal(kinds[1]?.fate, null)
  t.end()
})
