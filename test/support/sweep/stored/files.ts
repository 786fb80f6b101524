import { readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { headPath, openHeadFile } from '../../../../db/sqlite/ledger/head-file.ts'
import { both, type DatabaseEdit } from './editing.ts'

export const HEAD: readonly DatabaseEdit[] = [
  {
    name: 'head: gone',
    work: (file) => {
      rmSync(headPath(file))
      return both(0)
    },
  },
  {
    name: 'head: half written',
    work: (file, _, { below }) => {
      truncateSync(headPath(file), below(99))
      return both(0)
    },
  },
  {
    name: 'head: bytes of nothing',
    work: (file) => {
      writeFileSync(headPath(file), Buffer.alloc(99))
      return both(0)
    },
  },
  {
    name: 'head: of a row that is not there',
    work: (file, { rows }, { below }) => {
      const head = openHeadFile(file)
      head.note({ seq: rows.length + 1 + below(9), hash: 'a'.repeat(64) })
      head.close()
      return both(4)
    },
  },
  {
    name: 'head: of another row',
    work: (file, { rows }, { below }) => {
      const head = openHeadFile(file)
      head.note({ seq: 1 + below(rows.length - 1), hash: 'a'.repeat(64) })
      head.close()
      return both(2)
    },
  },
]

export const BYTES: readonly DatabaseEdit[] = [
  {
    name: 'bytes: some of the file are others',
    work: (file, _, { below }) => {
      const bytes = readFileSync(file)
      for (let count = 1 + below(8); count > 0; count -= 1)
        bytes.writeUInt8(below(256), 100 + below(bytes.length - 100))
      writeFileSync(file, bytes)
      return both('any')
    },
  },
  {
    name: 'bytes: the file is cut off',
    work: (file, _, { below }) => {
      truncateSync(file, 16 + below(statSync(file).size - 16))
      return both('any')
    },
  },
  {
    name: 'bytes: a page of nothing',
    work: (file, _, { below }) => {
      const bytes = readFileSync(file)
      const page = below(bytes.length / 4096)
      bytes.fill(0, page * 4096 + (page === 0 ? 100 : 0), (page + 1) * 4096)
      writeFileSync(file, bytes)
      return both('any')
    },
  },
]
