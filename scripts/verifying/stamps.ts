import { hash } from 'node:crypto'
import { type StampAuthority, stampVerifier } from '../../certs/timestamps/judge.ts'
import { readStamp, StampError } from '../../certs/timestamps/stamp.ts'
import type { SignedCheckpoint, StampSummary, StampWatch } from '../../db/ledger/tree/trusted.ts'

/** A time stamp given in addition to the verified file. */
export interface GivenStamp {
  readonly file: string
  readonly bytes: Buffer
}

/**
 * Checks time stamps by the given authorities, and finds the checkpoints of given time stamps: each must be
 * of one. Every authority must have stamped one too.
 */
export function stampWatch(authorities: readonly StampAuthority[], given: readonly GivenStamp[]): StampWatch {
  const judge = stampVerifier(authorities)
  const stamped = new Map<string, StampSummary>()
  const silent = new Set(authorities)
  const lost = new Set(given.map(inspectStamp))
  let unchecked = 0

  /** Returns the fault, as a sentence; null if there is none. */
  async function judged(stamp: Uint8Array, { size, note }: SignedCheckpoint): Promise<string | null> {
    try {
      const found = await judge(stamp, note.text)
      if (found === null) unchecked += 1
      else count(found, size)
      return null
    } catch (error) {
      if (!(error instanceof StampError)) throw error
      return `the time stamp of the checkpoint of ${size} rows ${error.message}`
    }
  }

  function count({ by, name, at }: NonNullable<Awaited<ReturnType<typeof judge>>>, size: number): void {
    for (const authority of by) silent.delete(authority)
    const known = stamped.get(name)
    const last = known && known.size > size ? known : { name, at, size }
    stamped.set(name, { ...last, count: (known?.count ?? 0) + 1 })
  }

  /** Takes the given stamps of this text that were not found yet. */
  function takeGiven(text: string): readonly Buffer[] {
    if (lost.size === 0) return []
    const digest = hash('sha256', text)
    const found = [...lost].filter(({ imprint }) => imprint === digest)
    for (const stamp of found) lost.delete(stamp)
    return found.map(({ bytes }) => bytes)
  }

  return {
    isWanted: authorities.length + given.length > 0,
    check: async (checkpoint, beside) => {
      const found: (string | null)[] = []
      for (const stamp of [...beside, ...takeGiven(checkpoint.note.text)])
        found.push(await judged(stamp, checkpoint))
      return found.filter((sentence) => sentence !== null)
    },
    end: () => ({
      problems: [
        ...[...lost].map(({ file, fault }) => `the time stamp ${file} ${fault}`),
        ...[...silent].map(({ given: by }) => `no checkpoint is stamped by an authority of ${by}`),
      ],
      stamped: [...stamped.values()],
      unchecked,
    }),
  }
}

interface InspectedStamp extends GivenStamp {
  /** Hex; null if it cannot be read. */
  readonly imprint: string | null
  /** The fault that it has as long as no checkpoint is found, as half a sentence. */
  readonly fault: string
}

function inspectStamp(stamp: GivenStamp): InspectedStamp {
  try {
    const imprint = readStamp(stamp.bytes).imprint.toString('hex')
    return { ...stamp, imprint, fault: 'is of no checkpoint that is here' }
  } catch (error) {
    if (!(error instanceof StampError)) throw error
    return { ...stamp, imprint: null, fault: error.message }
  }
}
