import { BESIDE, SCHEMA } from './beside.ts'
import { both, type DatabaseEdit } from './editing.ts'
import { BYTES, HEAD } from './files.ts'
import { ROWS } from './rows.ts'
import { TREE_OF_DATABASE } from './tree.ts'

const HONEST: readonly DatabaseEdit[] = [{ name: 'as it was', work: () => both(0) }]

export const DATABASE_EDITS: readonly DatabaseEdit[] = [
  ...HONEST,
  ...ROWS,
  ...TREE_OF_DATABASE,
  ...SCHEMA,
  ...BESIDE,
  ...HEAD,
  ...BYTES,
]
