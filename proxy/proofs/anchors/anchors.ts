import { resolve } from 'node:path'
import { parseVerifierKey } from '../../../db/ledger/tree/note.ts'
import type { AnchorOption } from '../options.ts'
import type { CheckpointAnchor } from './anchor.ts'
import { fileAnchor } from './file.ts'
import { timestampAnchor } from './timestamp.ts'
import { type PostToAnchor, urlAnchor } from './web.ts'
import { witnessAnchor } from './witness.ts'

/** The anchor that a file of the operator names. */
export function anchorOf(
  { file, url, witness, key, timestamp }: AnchorOption,
  post: PostToAnchor,
): CheckpointAnchor {
  if (file !== undefined) return fileAnchor(resolve(file))
  if (url !== undefined) return urlAnchor(url, post)
  if (witness !== undefined && key !== undefined) return witnessAnchor(witness, parseVerifierKey(key), post)
  if (timestamp !== undefined) return timestampAnchor(timestamp, post)
  // The schema lets no other one through.
  throw new Error('an anchor without a place')
}

/** The name of an anchor, as its state is stored by. */
export const anchorName = (option: AnchorOption): string => anchorOf(option, NOWHERE).name

const NOWHERE: PostToAnchor = () => Promise.reject(new Error('nothing is posted'))

/** The files among the anchors. */
export const anchorFiles = (options: readonly AnchorOption[]): readonly string[] =>
  options.flatMap(({ file }) => (file === undefined ? [] : [resolve(file)]))
