import { generateKeyPairSync } from 'node:crypto'
import t from 'tap'
import { checkpointText, parseCheckpoint } from '../../../../db/ledger/tree/checkpoint.ts'
import { EMPTY_ROOT, leafHash, nodeHash } from '../../../../db/ledger/tree/hashes.ts'
import {
  cosignNote,
  noteOf,
  parseNote,
  parseVerifierKey,
  signNote,
  verifierKeyText,
  verifyNoteSignature,
} from '../../../../db/ledger/tree/note.ts'
import {
  consistencyProof,
  inclusionProof,
  isConsistent,
  parseTlogProof,
  provesLeaf,
  rootByInclusion,
  tlogProofText,
} from '../../../../db/ledger/tree/proofs.ts'
import { edgeOf, extendTree, type ReadTile, type TreeEdge } from '../../../../db/ledger/tree/tiles.ts'
import { compactTree } from '../../../../db/ledger/tree/walk.ts'

const LEAVES = 1_100
const leaves = Array.from({ length: LEAVES }, (_, index) => leafHash(`row ${index}`))

/** RFC 6962, section 2.1, as it stands there. */
function treeHash(from: number, until: number): Buffer {
  if (from === until) return EMPTY_ROOT
  if (until - from === 1) return leaves[from] ?? EMPTY_ROOT
  let k = 1
  while (k * 2 < until - from) k *= 2
  return nodeHash(treeHash(from, from + k), treeHash(from + k, until))
}

const stored = new Map<string, Buffer>()
const read: ReadTile = async ({ level, n }, width) => {
  const tile = stored.get(`${level}/${n}`) ?? Buffer.alloc(0)
  if (tile.length < width * 32) throw new Error(`tile ${level}/${n} is narrower than ${width}`)
  return tile.subarray(0, width * 32)
}

t.test('a tree that grows by any portions has the roots of RFC 6962, and its tiles only grow', async (t) => {
  const compact = compactTree()
  t.same(compact.root(), EMPTY_ROOT)
  let edge: TreeEdge = []
  for (let [size, portion] = [0, 1]; size < LEAVES; portion = (portion * 7 + 3) % 311) {
    const some = leaves.slice(size, size + portion + 1)
    const grown = extendTree(size, edge, Buffer.concat(some))
    for (const hash of some) compact.addHash(hash)
    size += some.length
    edge = grown.edge
    t.same(grown.root, treeHash(0, size), `${size} leaves`)
    t.same(compact.root(), grown.root)
    for (const { level, n, hashes } of grown.tiles) {
      const before = stored.get(`${level}/${n}`) ?? Buffer.alloc(0)
      if (!hashes.subarray(0, before.length).equals(before)) t.fail(`tile ${level}/${n} has changed`)
      stored.set(`${level}/${n}`, hashes)
    }
    const read = edgeOf(size).map(({ level, n, width }) =>
      width === 0 ? Buffer.alloc(0) : stored.get(`${level}/${n}`)?.subarray(0, width * 32),
    )
    t.same(read, edge, 'the edge can be read from the tiles')
  }
})

t.test('an inclusion proof leads from its leaf to the root, and no other leaf by it', async (t) => {
  for (const size of [1, 2, 3, 7, 8, 255, 256, 257, 600, 1_024, LEAVES]) {
    const root = treeHash(0, size)
    for (const index of [0, 1, 2, 5, 254, 255, 256, 511, 599, size - 2, size - 1]) {
      if (index < 0 || index >= size) continue
      const proof = await inclusionProof(read, index, size)
      const leaf = leaves[index] ?? EMPTY_ROOT
      t.same(rootByInclusion(leaf, index, size, proof), root, `${index} in ${size}`)
      const other = leaves[(index + 1) % LEAVES] ?? EMPTY_ROOT
      t.notSame(rootByInclusion(other, index, size, proof), root)
      if (size > 1) t.notSame(rootByInclusion(leaf, index ^ 1, size, proof), root)
      t.equal(rootByInclusion(leaf, index, size, [...proof, root]), null, 'a proof that is too long')
    }
  }
  await t.rejects(inclusionProof(read, 3, 3), { name: 'RangeError' })
})

t.test(
  'a consistency proof shows that the older tree is the beginning of the newer one, and of no other',
  async (t) => {
    for (const older of [1, 2, 3, 6, 8, 255, 256, 257, 512, 1_000]) {
      for (const newer of [1, 4, 8, 256, 300, 513, 1_024, LEAVES]) {
        if (newer < older) continue
        const proof = await consistencyProof(read, older, newer)
        const [one, other] = [
          { size: older, root: treeHash(0, older) },
          { size: newer, root: treeHash(0, newer) },
        ]
        t.ok(isConsistent(one, other, proof), `${older} in ${newer}`)
        t.notOk(isConsistent({ ...one, root: EMPTY_ROOT }, other, proof))
        t.notOk(isConsistent(one, { ...other, root: EMPTY_ROOT }, proof))
        t.notOk(isConsistent(one, other, [...proof, EMPTY_ROOT]))
        if (older < newer) t.notOk(isConsistent(other, one, proof))
      }
    }
  },
)

const { privateKey, publicKey } = generateKeyPairSync('ed25519')
const text = checkpointText({ origin: 'example.org/acme/audit', size: 3, root: treeHash(0, 3) })

t.test('a signed checkpoint verifies by the key of its log and by no other key, name or text', (t) => {
  const log = parseVerifierKey(verifierKeyText('example.org/acme/audit', 'log', publicKey))
  const other = parseVerifierKey(
    verifierKeyText('example.org/acme/audit', 'log', generateKeyPairSync('ed25519').publicKey),
  )
  const line = signNote(text, log.name, privateKey)
  const note = parseNote(noteOf(text, [line]))
  t.same(parseCheckpoint(note.text), { origin: 'example.org/acme/audit', size: 3, root: treeHash(0, 3) })
  t.same(verifyNoteSignature(note, log), { good: true })
  t.same(verifyNoteSignature(note, other), { good: false })
  t.same(verifyNoteSignature({ ...note, text: text.replace('3', '4') }, log), { good: false })
  t.same(
    verifyNoteSignature(parseNote(noteOf(text, [line, line])), log),
    { good: false },
    'signed twice by one key',
  )
  t.end()
})

t.test(
  'a cosignature says when the witness saw the checkpoint, and verifies by the key of the witness',
  (t) => {
    const witness = parseVerifierKey(verifierKeyText('witness.example', 'witness', publicKey))
    const line = cosignNote(text, 'witness.example', privateKey, 1_800_000_000)
    t.same(verifyNoteSignature(parseNote(noteOf(text, [line])), witness), { good: true, at: 1_800_000_000 })
    const moved = Buffer.from(line.split(' ')[2] ?? '', 'base64')
    moved.writeUInt8(moved.readUInt8(11) ^ 1, 11)
    const later = `— witness.example ${moved.toString('base64')}`
    t.same(verifyNoteSignature(parseNote(noteOf(text, [later])), witness), { good: false })
    t.end()
  },
)

t.test('a proof as text is read back, and proves its own leaf alone', async (t) => {
  const note = noteOf(text, [signNote(text, 'example.org/acme/audit', privateKey)])
  const proof = parseTlogProof(tlogProofText(1, await inclusionProof(read, 1, 3), note))
  t.equal(proof.index, 1)
  t.ok(provesLeaf(proof, 'row 1'))
  t.notOk(provesLeaf(proof, 'row 2'))
})

t.test('what is no key, note, checkpoint or proof is refused', (t) => {
  for (const key of ['', 'a', 'a+00000000+AAAA', `a b+00000000+${'A'.repeat(44)}`])
    t.throws(() => parseVerifierKey(key), { name: 'Malformed' }, key)
  for (const note of ['', 'a\n', 'a\n\n', 'a\n\n— b\n', 'a\n\n— b !!!!\n', 'a\u0001\n\n— b AAAAAAAA\n'])
    t.throws(() => parseNote(note), { name: 'Malformed' }, note)
  for (const head of ['a\n1\n', 'a\n01\nAAAA\n', 'a\n-1\nAAAA\n', `\n1\n${EMPTY_ROOT.toString('base64')}\n`])
    t.throws(() => parseCheckpoint(head), { name: 'Malformed' }, head)
  for (const proof of ['', 'c2sp.org/tlog-proof@v1\nindex x\n\n', 'c2sp.org/tlog-proof@v2\nindex 1\n\na\n'])
    t.throws(() => parseTlogProof(proof), { name: 'Malformed' }, proof)
  t.end()
})
