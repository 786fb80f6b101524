import type { Json } from '../../gateway.ts'
import { receiptOver, signer } from '../../sealed-log.ts'
import { anchorFile, signed } from '../life/log.ts'
import { type ReceiptChange, withProof, withRow, withSalt } from './holding.ts'

/** Another body or salt: 2. */
export const BODY: Readonly<Record<string, ReceiptChange>> = {
  'another body': ({ body }, { below }) => ({ body: `${body.slice(0, below(body.length))}x`, code: 2 }),
  'no body': () => ({ body: '', code: 2 }),
  'a blank more': ({ body }) => ({ body: `${body} `, code: 2 }),
  'the body in another order': ({ body }) => ({
    body: JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(body)).toReversed())),
    code: 2,
  }),
  'a body behind a byte order mark': ({ body }) => ({ body: `\ufeff${body}`, code: 2 }),
  'the end of the body, and a salt that goes on into it': (held, { below }) => {
    const bytes = Buffer.from(held.body)
    const at = 1 + below(bytes.length - 1)
    return {
      file: withSalt(held, held.salt + bytes.subarray(0, at).toString('hex')),
      body: bytes.subarray(at),
      code: 2,
    }
  },
  'the body and the end of the salt': (held, { below }) => {
    const at = 1 + below(15)
    const body = Buffer.concat([Buffer.from(held.salt, 'hex').subarray(at), Buffer.from(held.body)])
    return { file: withSalt(held, held.salt.slice(0, 2 * at)), body, code: 2 }
  },
  'all of it as the body, and no salt': (held) => ({
    file: withSalt(held, ''),
    body: Buffer.concat([Buffer.from(held.salt, 'hex'), Buffer.from(held.body)]),
    code: 2,
  }),
  'another salt': (held) => ({ file: withSalt(held, '5a'.repeat(16)), code: 2 }),
  'a salt that is none': (held, { one }) => ({
    file: withSalt(
      held,
      one([
        null,
        5,
        [],
        {},
        'x',
        `${held.salt}zz`,
        `${held.salt} `,
        held.salt.toUpperCase() === held.salt ? 'x' : held.salt.toUpperCase(),
        held.salt.slice(1),
      ]),
    ),
    code: 2,
  }),
  'the salt of another commitment': (held) => ({
    file: JSON.stringify({ ...held.receipt, salts: { arguments_sha256: held.salt } }),
    code: 2,
  }),
  'no salts': (held, { one }) => ({
    file: JSON.stringify({ ...held.receipt, salts: one([undefined, null, [], 'x', 7, [held.salt]]) }),
    code: 2,
  }),
}

/** Rows that are not what they say: 2. */
export const PLACE: Readonly<Record<string, ReceiptChange>> = {
  'another place': (held) => ({ file: withRow(held, ({ seq }) => ({ seq: seq + 1 })), code: 2 }),
  'another stream': (held) => ({ file: withRow(held, () => ({ stream: 'x' })), code: 2 }),
  'a leaf that is no JSON': (held, { one }) => ({
    file: withRow(held, () => ({
      leaf: one(['', '{', 'null', '[]', '1', '"x"', '{}', '{"seq":', '['.repeat(50_000)]),
    })),
    code: 2,
  }),
  'a leaf with half a surrogate pair': (held) => ({
    file: withRow(held, ({ leaf }) => ({ leaf: leaf.replace('"v":', '"\ud800":1,"v":') })),
    code: 2,
  }),
  'a leaf whose place is true': (held) => ({
    file: withRow(held, ({ leaf }) => ({ leaf: leaf.replace(/"seq":\d+/, '"seq":true'), seq: 1 })),
    code: 2,
  }),
  'the outcome first': ({ receipt }) =>
    receipt.rows.length < 2
      ? null
      : { file: JSON.stringify({ ...receipt, rows: receipt.rows.toReversed() }), code: 2 },
  'the decision twice': ({ receipt }) => ({
    file: JSON.stringify({ ...receipt, rows: [receipt.rows[0], ...receipt.rows] }),
    code: 2,
  }),
  'a row of another request': async ({ receipt, note }, { one }, log) => {
    const other = one(
      log.rows.flatMap(({ request_id: id }, index) =>
        id !== null &&
        id !==
          log.rows.find(({ seq, stream }) => seq === receipt.rows[0].seq && stream === receipt.rows[0].stream)
            ?.request_id
          ? [index]
          : [],
      ),
    )
    if (other === undefined) return null
    const { rows } = await receiptOver(log.leaves, [other], note, {})
    return { file: JSON.stringify({ ...receipt, rows: [...receipt.rows, ...rows] }), code: 2 }
  },
}

/** Proofs that do not lead from the leaf to what the log has signed: 3. */
export const PROOF: Readonly<Record<string, ReceiptChange>> = {
  'a leaf that was changed': (held, { one }) => {
    const [from, to] = one([
      ['"allowed"', '"denied"'],
      ['"version":"0', '"version":"1'],
      ['2026-', '2025-'],
      ['"v":2', '"v":1'],
    ]) ?? ['', '']
    return held.receipt.rows[0].leaf.includes(from)
      ? { file: withRow(held, ({ leaf }) => ({ leaf: leaf.replace(from, to) })), code: 3 }
      : null
  },
  'a blank in the leaf': (held) => ({ file: withRow(held, ({ leaf }) => ({ leaf: `${leaf} ` })), code: 3 }),
  'another index': (held, { below }) => ({
    file: withProof(held, /index \d+/, `index ${1_000 + below(9)}`),
    code: 3,
  }),
  'an index beyond 2^53': (held) => ({
    file: withProof(held, /index \d+/, 'index 9007199254740993'),
    code: 3,
  }),
  'an index that is none': (held, { one }) => ({
    file: withProof(
      held,
      /index \d+/,
      one([
        'index -1',
        'index x',
        'index 01',
        'index',
        'index 1.0',
        'index 99999999999999999999',
        'index ٣',
        '',
      ]) ?? '',
    ),
    code: 3,
  }),
  'another head': (held) => ({ file: withProof(held, '@v1', '@v2'), code: 3 }),
  'carriage returns': (held) => ({ file: withProof(held, /\n/, '\r\n'), code: 3 }),
  'a hash less': (held) =>
    held.receipt.rows[0].proof.split('\n\n')[0].split('\n').length < 3
      ? null
      : { file: withProof(held, /(index \d+\n)[^\n]+\n/, '$1'), code: 3 },
  'a hash more': (held) => ({ file: withProof(held, '\n\n', `\n${'A'.repeat(43)}=\n\n`), code: 3 }),
  'a hash that is none': (held, { one }) => ({
    file: withProof(
      held,
      '\n\n',
      `\n${one(['x', 'AAAA', ' ', `${'A'.repeat(43)}`, `${'A'.repeat(42)}B=`])}\n\n`,
    ),
    code: 3,
  }),
  'a hundred hashes': (held) => ({
    file: withProof(held, '\n\n', `\n${`${'A'.repeat(43)}=\n`.repeat(100)}\n`),
    code: 3,
  }),
  'no proof': (held, { one }) => ({
    file: withRow(held, () => ({
      proof: one(['', '\n\n', 'x', '\ud800', 'c2sp.org/tlog-proof@v1', '\u0000']),
    })),
    code: 3,
  }),
  'a root of one own': (held) => ({
    file: withProof(held, /\n(?:[A-Za-z0-9+/]{43}=)\n\n—/, `\n${'A'.repeat(43)}=\n\n—`),
    code: 3,
  }),
  'another size': (held, _, { leaves }) => ({
    file: withProof(held, new RegExp(`\\n${leaves.length}\\n`), `\n${leaves.length + 1}\n`),
    code: 3,
  }),
  'half a surrogate pair in the note': (held) => ({
    file: withProof(held, '\n\nexample', '\n\n\ud800xample'),
    code: 3,
  }),
  'half a surrogate pair in the name of a signature': (held) => ({
    file: withProof(held, /$/, '— \ud800 AAAAAAAA\n'),
    code: 3,
  }),
  'another key': (_, __, ___, { thief }) => ({ keys: [thief.vkey], code: 3 }),
  'signed by a thief': async ({ receipt, salt }, _, log, { thief, witness }) => {
    const about = log.rows.flatMap(({ seq, stream }, index) =>
      receipt.rows.some((row: Json) => row.seq === seq && row.stream === stream) ? [index] : [],
    )
    const forged = await receiptOver(log.leaves, about, signed(log.leaves, [thief], witness), {
      body_sha256: salt,
    })
    return { file: JSON.stringify(forged), code: 3 }
  },
  'a leaf that the owner has written anew': async ({ receipt, salt, key }, _, log) => {
    const at = log.rows.findIndex(
      ({ seq, stream }) => receipt.rows[0].seq === seq && receipt.rows[0].stream === stream,
    )
    const leaves = log.leaves.with(at, (log.leaves[at] ?? '').replace('"version":"0', '"version":"1'))
    const [own] = log.keys
    if (own?.vkey !== key) return null
    const forged = await receiptOver(leaves, [at], signed(leaves, [own], null), { body_sha256: salt })
    // The key has signed both: only the checkpoint that was kept tells.
    return { file: JSON.stringify(forged), keys: [], kept: anchorFile(log.kept), code: 3 }
  },
  'a witness that has not signed': () => ({ witnesses: [signer('w9.example', 'witness').vkey], code: 3 }),
  'another origin': (held) => ({
    file: withProof(held, '\n\nexample.org/acme', '\n\nexample.org/x'),
    code: 3,
  }),
}
