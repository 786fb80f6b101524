import { existsSync, readFileSync } from 'node:fs'
import { stampAuthority } from '../../certs/timestamps/judge.ts'
import { type KeyKind, parseVerifierKey, type VerifierKey } from '../../db/ledger/tree/note.ts'
import { type LogTrust, parseSignedCheckpoints } from '../../db/ledger/tree/trusted.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { type VerbOptions, WrongUsage } from '../command.ts'
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
  readonly witness?: readonly string[] | undefined
  readonly tsa?: readonly string[] | undefined
  readonly timestamp?: readonly string[] | undefined
}

/** Reads the given options. Throws one sentence if a key, a checkpoint or a CA is none. */
export function trustedIn({
  key = [],
  checkpoint = [],
  witness = [],
  tsa = [],
  timestamp = [],
}: TrustValues): LogTrust {
  const authorities = tsa.map((file) =>
    withErrorName(file, () => stampAuthority(file, readFileSync(file, 'utf8'))),
  )
  const stamps = timestamp.map((file) => ({ file, bytes: withErrorName(file, () => readFileSync(file)) }))
  return {
    stamps: stampWatch(authorities, stamps),
    keys: key.flatMap((given) => keysIn(given, 'log')),
    witnesses: witness.flatMap((given) => keysIn(given, 'witness')),
    checkpoints: checkpoint.flatMap((file) => {
      const found = withErrorName(file, () => parseSignedCheckpoints(readFileSync(file, 'utf8')))
      if (found.length === 0) throw new Error(`${file}: there is no checkpoint in it`)
      return found
    }),
  }
}

/** Reads a verifier key, or a file of them. Throws one sentence if one is none, or of another kind. */
export function keysIn(given: string, kind: KeyKind): readonly VerifierKey[] {
  const text = existsSync(given) ? readFileSync(given, 'utf8') : given
  const keys = text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) =>
      withErrorName(existsSync(given) ? given : JSON.stringify(line), () => parseVerifierKey(line)),
    )
  if (keys.length === 0) throw new WrongUsage(`${given.trim() || 'nothing'} is not the key of a ${kind}`)
  const other = keys.find((key) => key.kind !== kind)
  if (other) throw new WrongUsage(`${other.name} is the key of a ${other.kind}, not of a ${kind}`)
  return keys
}

function withErrorName<Value>(what: string, read: () => Value): Value {
  try {
    return read()
  } catch (error) {
    throw new Error(`${what}: ${messageOf(error)}`, { cause: error })
  }
}
