import { existsSync, readFileSync } from 'node:fs'
import { stampAuthority } from '../../certs/timestamps/judge.ts'
import { type KeyKind, parseVerifierKey, type VerifierKey } from '../../db/ledger/tree/note.ts'
import { type LogTrust, parseSignedCheckpoints, type SignedCheckpoint } from '../../db/ledger/tree/trusted.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { type VerbOptions, WrongUsage } from '../command.ts'
import { printNotice } from '../print.ts'
import { stampWatch } from './stamps.ts'

/** The options for things that a verifier has from elsewhere. */
export const TRUST_OPTIONS = {
  key: {
    type: 'string',
    multiple: true,
    value: 'VKEY|FILE',
    description: 'a verifier key of the log that you have from elsewhere, or a file of them',
  },
  checkpoint: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    description: 'checkpoints that were kept elsewhere, as the file of an anchor holds them',
  },
  since: {
    type: 'string',
    value: 'FILE',
    description: 'a checkpoint that you keep: verify only what came behind it',
  },
  witness: {
    type: 'string',
    multiple: true,
    value: 'VKEY|FILE',
    description: 'the verifier key of a witness that must have cosigned',
  },
  tsa: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    description: 'CA certificates (PEM) of a time-stamping authority that must have stamped a checkpoint',
  },
  timestamp: {
    type: 'string',
    multiple: true,
    value: 'FILE',
    description: 'a time stamp (RFC 3161, .tsr) of a checkpoint that is here, or that --checkpoint brings',
  },
} as const satisfies VerbOptions

interface TrustValues {
  readonly key?: readonly string[] | undefined
  readonly checkpoint?: readonly string[] | undefined
  readonly since?: string | undefined
  readonly witness?: readonly string[] | undefined
  readonly tsa?: readonly string[] | undefined
  readonly timestamp?: readonly string[] | undefined
}

/** Reads the given options. Throws one sentence if a key, a checkpoint or a CA is none. */
export function trustedIn({
  key = [],
  checkpoint = [],
  since,
  witness = [],
  tsa = [],
  timestamp = [],
}: TrustValues): LogTrust {
  const authorities = tsa.map((file) =>
    withErrorName(file, () => stampAuthority(file, readFileSync(file, 'utf8'))),
  )
  for (const { given, odd } of authorities) tellLeftOut(given, odd)
  const last = since === undefined ? undefined : lastCheckpointIn(since)
  const stamps = timestamp.map((file) => ({ file, bytes: withErrorName(file, () => readFileSync(file)) }))
  return {
    stamps: stampWatch(authorities, stamps),
    keys: key.flatMap((given) => keysIn(given, 'log')),
    witnesses: witness.flatMap((given) => keysIn(given, 'witness')),
    checkpoints: [...checkpoint.flatMap(checkpointsIn), ...(last ? [last] : [])],
    since: last,
  }
}

function checkpointsIn(file: string): readonly SignedCheckpoint[] {
  const found = withErrorName(file, () => parseSignedCheckpoints(readFileSync(file, 'utf8')))
  if (found.length === 0) throw new Error(`${file}: there is no checkpoint in it`)
  return found
}

/** The largest checkpoint of a file. */
function lastCheckpointIn(file: string): SignedCheckpoint | undefined {
  const last = checkpointsIn(file)
    .toSorted((one, other) => one.size - other.size)
    .at(-1)
  if (last?.size === 0) throw new WrongUsage(`${file}: a checkpoint of no rows: leave --since out`)
  return last
}

/**
 * Reads a verifier key, or a file of them, one a line; a line that begins with # is a comment. Throws one
 * sentence if one is none, or of another kind. In a file of logs such a line costs the others nothing, and is
 * told: the key of a witness that must have cosigned never goes so.
 */
export function keysIn(given: string, kind: KeyKind): readonly VerifierKey[] {
  const isFile = existsSync(given)
  const lines = isFile
    ? readFileSync(given, 'utf8')
        .replace(/^\s*#.*$/gm, '')
        .split('\n')
    : [given]
  const keys: VerifierKey[] = []
  const faults: string[] = []
  for (const [i, line] of lines.entries()) {
    if (line.trim() === '') continue
    const found = keyOrFault(line, kind)
    if (typeof found !== 'string') keys.push(found)
    else faults.push(isFile ? `line ${i + 1}: ${found}` : found)
  }
  const [fault] = faults
  if (fault !== undefined && (kind === 'witness' || keys.length === 0))
    throw new WrongUsage(`${isFile ? given : JSON.stringify(given)}: ${fault}`)
  if (keys.length === 0) throw new WrongUsage(`${given.trim() || 'nothing'} is not the key of a ${kind}`)
  tellLeftOut(given, faults)
  return keys
}

function keyOrFault(line: string, kind: KeyKind): VerifierKey | string {
  try {
    const key = parseVerifierKey(line)
    return key.kind === kind ? key : `${key.name} is the key of a ${key.kind}, not of a ${kind}`
  } catch (error) {
    return messageOf(error)
  }
}

const tellLeftOut = (file: string, faults: readonly string[]): void => {
  for (const fault of faults) printNotice(`${file}: ${fault}; it is left out`)
}

function withErrorName<Value>(what: string, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    throw new Error(`${what}: ${messageOf(error)}`, { cause: error })
  }
}
