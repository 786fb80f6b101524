import { checkpointText } from '../../../../db/ledger/tree/checkpoint.ts'
import { noteOf, signNote } from '../../../../db/ledger/tree/note.ts'
import { anchorFile, signed } from '../life/log.ts'
import type { Case, Edit } from './edit.ts'
import { FORGED } from './kept-forged.ts'
import { exported, type KeptChange, keyOf, newest, rootOf, type Told, vkeys } from './telling.ts'

// Edits of what was kept elsewhere, or of what somebody says was kept: the rows are the honest ones.

/** What is honest, whatever is told. */
const HONEST: Readonly<Record<string, KeptChange>> = {
  'the keys and the file of an anchor': (log) => ({ keys: vkeys(log), kept: anchorFile(log.kept), code: 0 }),
  'the file of an anchor': (log) => ({ kept: anchorFile(log.kept), code: 0 }),
  'the newest key, and a file that goes back behind a rotation': (log) => ({
    keys: [keyOf(log).vkey],
    kept: anchorFile(log.kept),
    code: 0,
  }),
  'a witness': (log, _, { witness }) => ({
    keys: vkeys(log),
    kept: anchorFile(log.kept),
    witnesses: [witness.vkey],
    code: 0,
  }),
  'one checkpoint': (log, { one }) => ({ kept: one(log.kept)?.note ?? '', code: 0 }),
  'one checkpoint and the keys': (log, { one }) => ({
    keys: vkeys(log),
    kept: one(log.kept)?.note ?? '',
    code: 0,
  }),
  'each checkpoint twice': (log) => ({
    keys: vkeys(log),
    kept: anchorFile([...log.kept, ...log.kept]),
    code: 0,
  }),
  'checkpoints in another order': (log) => ({
    keys: vkeys(log),
    kept: anchorFile(log.kept.toReversed()),
    code: 0,
  }),
  'the end of the file is torn': (log, { below }) => {
    const last = Buffer.from(newest(log).note)
    return {
      keys: vkeys(log),
      kept: Buffer.concat([
        Buffer.from(`${anchorFile(log.kept)}\n`),
        last.subarray(0, 1 + below(last.length - 100)),
      ]),
      code: 0,
    }
  },
  'a torn note, and whole ones behind it': (log, { below }) => {
    const last = Buffer.from(newest(log).note)
    return {
      keys: vkeys(log),
      kept: Buffer.concat([
        last.subarray(0, 1 + below(last.length - 100)),
        Buffer.from(`\n\n${anchorFile(log.kept)}`),
      ]),
      code: 0,
    }
  },
  'a note that is torn inside a letter': (log) => {
    const last = Buffer.from(newest(log).note)
    return {
      keys: vkeys(log),
      kept: Buffer.concat([
        last.subarray(0, last.indexOf('—') + 1),
        Buffer.from(`\n\n${anchorFile(log.kept)}`),
      ]),
      code: 0,
    }
  },
  'a checkpoint of no rows': (log) => ({
    keys: vkeys(log),
    kept: `${signed([], [keyOf(log)], null)}\n${anchorFile(log.kept)}`,
    code: 0,
  }),
  'an extension line': (log, _, ring) => {
    const text = `${checkpointText({ origin: keyOf(log).name, size: log.leaves.length, root: rootOf(log.leaves) })}more\n`
    const note = noteOf(text, [signNote(text, keyOf(log).name, keyOf(log).privateKey)])
    // The file of an anchor holds none such; the others count.
    return {
      keys: vkeys(log),
      kept: `${note}\n${anchorFile(log.kept)}`,
      witnesses: [ring.witness.vkey],
      code: 0,
    }
  },
  'lines of signatures by others': (log, _, ring) => ({
    keys: vkeys(log),
    kept: newest(log).note + signed(log.leaves, [{ ...ring.thief, name: 'other' }], null).split('\n\n')[1],
    code: 0,
  }),
}

/** What is no key or no checkpoint at all. */
const NONE: Readonly<Record<string, KeptChange>> = {
  ...Object.fromEntries(
    ['', 'hello', '\n\n\n', 'a\n1\n', '\u0000', '\ufeff', 'x\n1\nAAAA\n\n— a AAAAAAAA\n'].map((kept) => [
      `no checkpoint: ${JSON.stringify(kept)}`,
      (): Told => ({ kept, code: 9 }),
    ]),
  ),
  'no checkpoint: one behind a byte order mark that is torn': (log) => ({
    kept: newest(log).note.slice(0, 40),
    code: 9,
  }),
  'no checkpoint: a size with a zero in front': (log) => ({
    kept: newest(log).note.replace(/^(\d+)$/m, '0$1'),
    code: 9,
  }),
  'no checkpoint: a size below nothing': (log) => ({
    kept: newest(log).note.replace(/^(\d+)$/m, '-$1'),
    code: 9,
  }),
  'no checkpoint: a size beyond 2^53': (log) => ({
    kept: newest(log).note.replace(/^\d+$/m, '9007199254740993'),
    code: 9,
  }),
  'no checkpoint: a size of a thousand digits': (log) => ({
    kept: newest(log).note.replace(/^\d+$/m, '9'.repeat(1_000)),
    code: 9,
  }),
  'no checkpoint: a size of other digits': (log) => ({
    kept: newest(log).note.replace(/^\d+$/m, '٣'),
    code: 9,
  }),
  'no checkpoint: a root of 31 bytes': (log) => ({
    kept: newest(log).note.replace(/^.{43}=$/m, `${Buffer.alloc(31).toString('base64')}`),
    code: 9,
  }),
  'no checkpoint: a root in another form of base64': (log) => ({
    kept: newest(log).note.replace(/^.{43}=$/m, `${'_'.repeat(43)}=`),
    code: 9,
  }),
  'no checkpoint: a root with bits left over': (log) => ({
    kept: newest(log).note.replace(/^(.{42}).=$/m, '$1B='),
    code: 9,
  }),
  'no checkpoint: carriage returns': (log) => ({ kept: newest(log).note.replaceAll('\n', '\r\n'), code: 9 }),
  'no checkpoint: a thousand signatures': (log) => ({
    kept: `${newest(log).note}${'— nobody AAAAAAAA\n'.repeat(1_000)}`,
    code: 9,
  }),
  'no key: nothing': () => ({ keys: [' '], code: 9 }),
  'no key: of another id': (log) => ({
    keys: [keyOf(log).vkey.replace(/\+[0-9a-f]{8}\+/, '+00000000+')],
    code: 9,
  }),
  'no key: one letter more': (log) => ({ keys: [`${keyOf(log).vkey}x`], code: 9 }),
  'no key: of another algorithm': (log) => ({
    keys: [
      `${keyOf(log).name}+00000000+${Buffer.concat([Buffer.of(2), Buffer.alloc(32)]).toString('base64')}`,
    ],
    code: 9,
  }),
  'no key: the key of a witness': (_, __, { witness }) => ({ keys: [witness.vkey], code: 9 }),
  'no witness: the key of a log': (log) => ({ witnesses: [keyOf(log).vkey], code: 9 }),
}

const ofKept = (name: string, change: KeptChange): Edit => ({
  name: `kept: ${name}`,
  make: (log, choose, ring): readonly Case[] | null => {
    const told = change(log, choose, ring)
    return told && [{ file: exported(log), ...told }]
  },
})

export const KEPT_EDITS: readonly Edit[] = Object.entries({ ...HONEST, ...FORGED, ...NONE }).map(
  ([name, change]) => ofKept(name, change),
)
