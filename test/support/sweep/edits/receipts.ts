import type { Json } from '../../gateway.ts'
import { anchorFile } from '../life/log.ts'
import type { Code, Edit } from './edit.ts'
import { type ReceiptChange, receiptOf, spelt, withProof, withRow } from './holding.ts'
import { BODY, PLACE, PROOF } from './receipts-forged.ts'

// Edits of receipts, of what opens their commitments, and of the body that they are about.

const HONEST: Readonly<Record<string, ReceiptChange>> = {
  'as it was given': () => ({ code: 0 }),
  'without its body': () => ({ body: undefined, code: 0 }),
  'with the checkpoint that was kept': (_, __, { kept }) => ({ keys: [], kept: anchorFile(kept), code: 0 }),
  'with a witness': (_, __, ___, { witness }) => ({ witnesses: [witness.vkey], code: 0 }),
  'without anything from elsewhere': () => ({ keys: [], code: 0 }),
  'with more members': ({ receipt }) => ({
    file: JSON.stringify({
      ...receipt,
      more: 1e300,
      rows: receipt.rows.map((row: Json) => ({ ...row, more: { a: [1.5] } })),
    }),
    code: 0,
  }),
  'with blanks': ({ receipt }) => ({ file: `\n ${JSON.stringify(receipt, null, 2)}\n\t `, code: 0 }),
  'with escapes': ({ text }) => ({
    file: text.replace('"rows"', '"\\u0072ows"').replaceAll('—', '\\u2014'),
    code: 0,
  }),
  'with a number that is spelt otherwise': (held) => ({
    file: held.text.replace(/"seq":(\d+)/, '"seq":$1.0'),
    code: 0,
  }),
  'with numbers that no double holds': ({ text }) => ({
    file: `{"big":${'9'.repeat(5_000)},"far":1e999,"small":-0.0,${text.slice(1)}`,
    code: 0,
  }),
  'with an extra line': (held) => ({ file: withProof(held, '\nindex', '\nextra AAAA\nindex'), code: 0 }),
}

const NONE: Readonly<Record<string, ReceiptChange>> = {
  'no rows': () => ({ file: '{"rows":[]}', code: 9 }),
  'half of it': ({ text }, { below }) => ({ file: text.slice(0, 1 + below(text.length - 2)), code: 9 }),
  'a row without a member': (held, { one }) => ({
    file: withRow(held, () => ({ [one(['leaf', 'stream', 'seq', 'proof']) ?? '']: undefined })),
    code: 9,
  }),
  'a row with a member of another type': (held, { one }) => ({
    file: withRow(held, () => ({
      [one(['leaf', 'stream', 'proof', 'seq']) ?? '']: one([null, true, [], {}]),
    })),
    code: 9,
  }),
  'a place that is a fraction': (held) => ({ file: withRow(held, () => ({ seq: 1.5 })), code: 9 }),
  'a place beyond 2^53': (held) => ({
    file: spelt(held, /"seq":\d+/g, '"seq":9007199254740993') ?? '',
    code: 9,
  }),
  'a place that is true': (held) => ({
    file: held.text.replace(/,"seq":\d+,"proof"/, ',"seq":true,"proof"'),
    code: 9,
  }),
  'a byte order mark': ({ text }) => ({ file: `\ufeff${text}`, code: 9 }),
  'UTF-16': ({ text }) => ({ file: Buffer.from(`\ufeff${text}`, 'utf16le'), code: 9 }),
  'a byte that is no UTF-8': ({ text }) => ({
    file: Buffer.concat([
      Buffer.from(text.slice(0, -1)),
      Buffer.from(',"x":"'),
      Buffer.of(0xff),
      Buffer.from('"}'),
    ]),
    code: 9,
  }),
  NaN: ({ text }) => ({ file: `{"x":NaN,${text.slice(1)}`, code: 9 }),
  'something behind it': ({ text }) => ({ file: `${text}x`, code: 9 }),
  'a list': ({ text }) => ({ file: `[${text}]`, code: 9 }),
  'too large': ({ receipt }) => ({
    file: JSON.stringify({ ...receipt, more: 'x'.repeat(5 << 20) }),
    code: 9,
  }),
}

const of = (name: string, change: ReceiptChange): Edit => ({
  name: `receipt: ${name}`,
  make: async (log, choose, ring) => {
    const held = await receiptOf(log, choose)
    const told = held && (await change(held, choose, log, ring))
    if (!told) return null
    const code: Code = told.code ?? 0
    // What is no receipt is not held against a body.
    const body = code === 9 ? {} : { body: held.body }
    return [{ file: held.text, keys: [held.key], ...body, ...told, code }]
  },
})

export const RECEIPT_EDITS: readonly Edit[] = Object.entries({
  ...HONEST,
  ...BODY,
  ...PLACE,
  ...PROOF,
  ...NONE,
}).map(([name, change]) => of(name, change))
