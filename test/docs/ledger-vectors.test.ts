import { spawnSync } from 'node:child_process'
import { createPrivateKey, createPublicKey, hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { checkpointText, parseCheckpoint } from '../../db/ledger/tree/checkpoint.ts'
import { EMPTY_ROOT, leafHash, nodeHash } from '../../db/ledger/tree/hashes.ts'
import {
  cosignNote,
  noteOf,
  parseNote,
  parseVerifierKey,
  signNote,
  verifierKeyText,
  verifyNoteSignature,
} from '../../db/ledger/tree/note.ts'
import { isConsistent, parseTlogProof, provesLeaf, tlogProofText } from '../../db/ledger/tree/proofs.ts'
import { compactTree } from '../../db/ledger/tree/walk.ts'
import type { Json } from '../support/gateway.ts'

const DOCS = join(import.meta.dirname, '../../docs')
const python = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))'])
const skip = python.status === 0 ? false : 'python3 (3.9 or newer) is not installed here'

const page = readFileSync(join(DOCS, 'ledger.md'), 'utf8')
const vectors: Json = JSON.parse(/<a id="vectors">[\s\S]*?```json\n([\s\S]*?)\n```/.exec(page)?.[1] ?? 'null')

/** The private key of a seed (RFC 8032): PKCS #8 is the seed behind 16 fixed bytes (RFC 8410). */
const keyOf = (seed: string) =>
  createPrivateKey({
    key: Buffer.from(`302e020100300506032b657004220420${seed}`, 'hex'),
    format: 'der',
    type: 'pkcs8',
  })

const bytes = (base64: string): Buffer => Buffer.from(base64, 'base64')
const rootOf = (size: number) => ({ size, root: bytes(vectors.roots[size - 1]) })

await t.test('docs/ledger.md#vectors rows follow each other, and make the roots', (t) => {
  const tree = compactTree()
  let before = '0'.repeat(64)
  for (const [index, row] of vectors.rows.entries()) {
    const { seq, prev_hash: previous } = JSON.parse(row.leaf)
    t.same([seq, previous], [index + 1, before])
    before = hash('sha256', row.leaf)
    t.equal(row.row_hash, before)
    t.equal(leafHash(row.leaf).toString('hex'), row.leaf_hash)
    tree.add(row.leaf)
    t.same(tree.root(), rootOf(index + 1).root)
  }
  const [one, two, three] = vectors.rows.map((row: Json) => leafHash(row.leaf))
  t.same(nodeHash(nodeHash(one, two), three), tree.root())
  t.end()
})

await t.test('docs/ledger.md#vectors the log and its witness sign just these bytes', (t) => {
  const log = parseVerifierKey(vectors.log.vkey)
  const witness = parseVerifierKey(vectors.witness.vkey)
  const [logKey, witnessKey] = [keyOf(vectors.log.seed), keyOf(vectors.witness.seed)]
  t.equal(verifierKeyText(log.name, 'log', createPublicKey(logKey)), vectors.log.vkey)
  t.equal(verifierKeyText(witness.name, 'witness', createPublicKey(witnessKey)), vectors.witness.vkey)
  const text = checkpointText({ origin: log.name, ...rootOf(3) })
  const lines = [
    signNote(text, log.name, logKey),
    cosignNote(text, witness.name, witnessKey, vectors.witness.time),
  ]
  t.equal(noteOf(text, lines), vectors.note)
  const note = parseNote(vectors.note)
  t.same(parseCheckpoint(note.text), { origin: log.name, ...rootOf(3) })
  t.same(verifyNoteSignature(note, log), { good: true })
  t.same(verifyNoteSignature(note, witness), { good: true, at: vectors.witness.time })
  t.equal(verifyNoteSignature({ ...note, text: text.replace('\n3\n', '\n2\n') }, log).good, false)
  t.end()
})

await t.test('docs/ledger.md#vectors the proofs hold, and for no other leaf or root', (t) => {
  const proof = parseTlogProof(vectors.inclusion)
  t.equal(tlogProofText(proof.index, proof.hashes, vectors.note), vectors.inclusion)
  const proven = vectors.rows.map((row: Json) => provesLeaf(proof, row.leaf))
  t.same(proven, [false, true, false])
  const { older, newer, proof: hashes } = vectors.consistency
  t.ok(isConsistent(rootOf(older), rootOf(newer), hashes.map(bytes)))
  t.notOk(isConsistent({ ...rootOf(2), size: older }, rootOf(newer), hashes.map(bytes)))
  t.end()
})

await t.test('docs/ledger.md#vectors verify.py takes them', { skip }, (t) => {
  const log = parseVerifierKey(vectors.log.vkey)
  const none = checkpointText({ origin: log.name, size: 0, root: EMPTY_ROOT })
  const empty = noteOf(none, [signNote(none, log.name, keyOf(vectors.log.seed))])
  const dir = t.testdir({
    'notes.txt': `${empty}\n${vectors.note}`,
    'rows.ndjson': vectors.rows
      .map(({ leaf, row_hash: sealed }: Json) =>
        leaf.replace(',"seq":', `,"row_hash":"${sealed}","seq":`).concat('\n'),
      )
      .join(''),
    'note.txt': vectors.note,
    'receipt.json': JSON.stringify({
      rows: [{ leaf: vectors.rows[1].leaf, stream: 'main', seq: 2, proof: vectors.inclusion }],
      salts: {},
    }),
  })
  const trusted = ['--key', vectors.log.vkey, '--witness', vectors.witness.vkey]
  const at = new Date(vectors.witness.time * 1000).toISOString()
  const verdict = `\nVERIFIED, WITNESSED by witness.example/w1 at ${at}\n`
  const run = (...args: string[]) => {
    const { status, stdout } = spawnSync('python3', [join(DOCS, 'verify.py'), ...args], {
      encoding: 'utf8',
      cwd: dir,
    })
    return { code: status, out: stdout }
  }
  t.match(run('rows.ndjson', '--checkpoint', 'note.txt', ...trusted), { code: 0, out: verdict })
  t.match(run('rows.ndjson', '--checkpoint', 'notes.txt', ...trusted), { code: 0, out: verdict })
  t.match(run('receipt.json', ...trusted), { code: 0, out: verdict })
  t.end()
})
