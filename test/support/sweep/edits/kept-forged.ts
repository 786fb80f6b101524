import { checkpointText } from '../../../../db/ledger/tree/checkpoint.ts'
import { noteOf } from '../../../../db/ledger/tree/note.ts'
import { signer } from '../../sealed-log.ts'
import { anchorFile, type Kept, signed } from '../life/log.ts'
import { claiming, type KeptChange, keyOf, NO_ROOT, newest, rootOf, vkeys } from './telling.ts'

/** Checkpoints that the rows do not make, or that nobody signed who should have. */
export const FORGED: Readonly<Record<string, KeptChange>> = {
  'another root, signed by the log': (log, { one }) => {
    const { size } = one(log.kept) as Kept
    return {
      keys: vkeys(log),
      kept: `${claiming(keyOf(log), size, NO_ROOT)}\n${anchorFile(log.kept)}`,
      code: 3,
    }
  },
  'two checkpoints of one size': (log, { one }) => {
    const { size } = one(log.kept) as Kept
    return { kept: `${anchorFile(log.kept)}\n${claiming(keyOf(log), size, NO_ROOT)}`, code: 3 }
  },
  'a checkpoint of a size that was never signed': (log, { below }) => {
    const size = 1 + below(log.leaves.length)
    return { keys: vkeys(log), kept: claiming(keyOf(log), size, NO_ROOT), code: 3 }
  },
  'a checkpoint of the rows of another log': (log, { one }) => {
    const { size } = one(log.kept) as Kept
    return {
      keys: vkeys(log),
      kept: claiming(keyOf(log), size, rootOf(log.leaves.slice(0, size).toReversed())),
      code: size === 1 ? 0 : 3,
    }
  },
  'rows of no checkpoint with a root': (log) => ({
    keys: vkeys(log),
    kept: `${claiming(keyOf(log), 0, NO_ROOT)}\n${newest(log).note}`,
    code: 3,
  }),
  'the size is one more': (log) => ({
    keys: vkeys(log),
    kept: newest(log).note.replace(/^\d+$/m, String(log.leaves.length + 1)),
    code: 3,
  }),
  'the size is one less': (log) => ({
    keys: vkeys(log),
    kept: newest(log).note.replace(/^\d+$/m, String(log.leaves.length - 1)),
    code: 3,
  }),
  'more rows than there are, signed by the log': (log, { below }) => ({
    keys: vkeys(log),
    kept: `${anchorFile(log.kept)}\n${claiming(keyOf(log), log.leaves.length + 1 + below(99), NO_ROOT)}`,
    code: 4,
  }),
  'more rows than there are, twice': (log) => ({
    keys: vkeys(log),
    kept: `${anchorFile(log.kept)}\n${claiming(keyOf(log), log.leaves.length + 1, NO_ROOT)}\n${claiming(keyOf(log), log.leaves.length + 2, NO_ROOT)}`,
    code: 4,
  }),
  'more rows than there are, seen by the witness alone there': (log, _, ring) => ({
    keys: vkeys(log),
    kept: claiming(keyOf(log), log.leaves.length + 3, NO_ROOT, { witness: ring.witness }),
    witnesses: [ring.witness.vkey],
    code: 4,
  }),
  'more rows than there are, signed by a thief': (log, _, ring) => ({
    keys: vkeys(log),
    kept: `${anchorFile(log.kept)}\n${claiming(ring.thief, log.leaves.length + 3, NO_ROOT)}`,
    code: 3,
  }),
  'more rows than there are, twice, and the last is by a thief': (log, _, ring) => ({
    keys: vkeys(log),
    kept: `${anchorFile(log.kept)}\n${claiming(keyOf(log), log.leaves.length + 1, NO_ROOT)}\n${claiming(ring.thief, log.leaves.length + 2, NO_ROOT)}`,
    code: 3,
  }),
  'more rows than there are, of another log': (log, _, ring) => ({
    kept: `${anchorFile(log.kept)}\n${claiming(ring.thief, log.leaves.length + 3, NO_ROOT, { origin: 'example.org/x/audit' })}`,
    code: 3,
  }),
  'signed by a thief': (log, _, ring) => ({
    keys: vkeys(log),
    kept: signed(log.leaves, [ring.thief], ring.witness),
    code: 3,
  }),
  'signed by a thief who uses the name of the key': (log, _, ring) => ({
    keys: vkeys(log),
    kept: signed(log.leaves, [{ ...ring.thief, name: keyOf(log).name }], ring.witness),
    code: 3,
  }),
  'signed by a former key alone': (log, _, ring) => {
    const former = signer()
    return { keys: [keyOf(log).vkey], kept: signed(log.leaves, [former], ring.witness), code: 3 }
  },
  'signed by nobody': (log) => ({
    keys: vkeys(log),
    kept: noteOf(
      checkpointText({ origin: keyOf(log).name, size: log.leaves.length, root: rootOf(log.leaves) }),
      ['— nobody AAAAAAAA'],
    ),
    code: 3,
  }),
  'signed twice by one key': (log) => {
    const [text, lines = ''] = newest(log).note.split('\n\n')
    const [first = ''] = lines.split('\n')
    return { keys: [keyOf(log).vkey], kept: `${text}\n\n${first}\n${lines}`, code: 3 }
  },
  'a bit of a signature': (log, { below }) => {
    const [text, lines = ''] = newest(log).note.split('\n\n')
    const [, name = '', body = ''] = /^— (\S+) (\S+)/.exec(lines) ?? []
    const bytes = Buffer.from(body, 'base64')
    const at = 4 + below(bytes.length - 4)
    bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << below(8)), at)
    return { keys: [keyOf(log).vkey], kept: `${text}\n\n— ${name} ${bytes.toString('base64')}\n`, code: 3 }
  },
  'a signature of no point': (log, { one }) => {
    const [text, lines = ''] = newest(log).note.split('\n\n')
    const [, name = '', body = ''] = /^— (\S+) (\S+)/.exec(lines) ?? []
    const bytes = Buffer.from(body, 'base64')
    bytes.fill(one([0, 0xff, 0xed]) ?? 0, 4)
    return { keys: [keyOf(log).vkey], kept: `${text}\n\n— ${name} ${bytes.toString('base64')}\n`, code: 3 }
  },
  'a signature of another length': (log, { one }) => {
    const [text, lines = ''] = newest(log).note.split('\n\n')
    const [, name = '', body = ''] = /^— (\S+) (\S+)/.exec(lines) ?? []
    const bytes = Buffer.from(body, 'base64')
    return {
      keys: [keyOf(log).vkey],
      kept: `${text}\n\n— ${name} ${Buffer.concat([bytes, Buffer.alloc(one([1, 8, 64]) ?? 1)]).toString('base64')}\n`,
      code: 3,
    }
  },
  'a bit of a cosignature': (log, { below }, { witness }) => {
    const note = newest(log).note.replace(/— witness\S* (\S+)\n/, (_line, body) => {
      const bytes = Buffer.from(body, 'base64')
      const at = 4 + below(bytes.length - 4)
      bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << below(8)), at)
      return `— ${witness.name} ${bytes.toString('base64')}\n`
    })
    return { keys: vkeys(log), kept: note, witnesses: [witness.vkey], code: 3 }
  },
  'a witness that has not signed': (log) => ({
    keys: vkeys(log),
    kept: anchorFile(log.kept),
    witnesses: [signer('witness.example/w1', 'witness').vkey],
    code: 3,
  }),
  'one witness of two': (log, _, { witness }) => ({
    keys: vkeys(log),
    kept: anchorFile(log.kept),
    witnesses: [witness.vkey, signer('w2.example', 'witness').vkey],
    code: 3,
  }),
  'a witness, and no checkpoint': (_, __, { witness }) => ({ witnesses: [witness.vkey], code: 3 }),
  'a key, and no checkpoint': (log) => ({ keys: vkeys(log), code: 3 }),
  'another key': (log, _, { thief }) => ({ keys: [thief.vkey], kept: anchorFile(log.kept), code: 3 }),
  'another origin': (log) => ({
    keys: vkeys(log),
    kept: claiming(keyOf(log), log.leaves.length, rootOf(log.leaves), { origin: 'example.org/other/audit' }),
    code: 3,
  }),
  'checkpoints of two logs': (log) => ({
    kept: `${anchorFile(log.kept)}\n${claiming(keyOf(log), log.leaves.length, rootOf(log.leaves), { origin: 'example.org/other/audit' })}`,
    code: 3,
  }),
  'an older tree that was given up': (log) => ({
    kept: `${claiming({ ...keyOf(log), name: 'example.org/acme/audit' }, log.leaves.length + 50, NO_ROOT)}\n${claiming({ ...keyOf(log), name: 'example.org/acme/audit-2' }, log.leaves.length, rootOf(log.leaves))}`,
    code: 3,
  }),
}
