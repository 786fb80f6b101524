import fc from 'fast-check'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { JsonObject, JsonValue } from '../../../db/support/json.ts'

const text = fc.string({ unit: 'binary', maxLength: 40 })
// What JSON writes without a backslash.
const name = text.map((name) => name.toWellFormed()).filter((name) => JSON.stringify(name) === `"${name}"`)
const anyText = fc.oneof(
  text,
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((c) => String.fromCharCode(c)) }),
)
const { json } = fc.letrec<{ json: JsonValue }>((tie) => ({
  json: fc.oneof(
    { depthSize: 'small' },
    anyText,
    fc.maxSafeInteger(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.dictionary(name, tie('json'), { maxKeys: 4 }),
  ),
}))
export const anyDetail: fc.Arbitrary<JsonObject> = fc.dictionary(name, json, { maxKeys: 6 })
const optional = fc.option(anyText, { nil: null })
/** An entry of any texts, also half surrogate pairs, and any detail. */
export const anyEntry: fc.Arbitrary<LedgerEntry> = fc.record({
  at: fc.integer({ min: 0, max: 253_402_300_799_999 }),
  ...{ action: anyText, status: anyText, config_digest: anyText },
  ...{ request_id: optional, principal_id: optional, principal_type: optional, tool: optional },
  ...{ model: optional, provider: optional, cert_thumbprint: optional, dpop_jkt: optional },
  detail: anyDetail,
})
