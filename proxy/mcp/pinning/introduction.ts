import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { isObject, type JsonObject, type UnknownRecord } from '../../../db/support/json.ts'
import { IMPLEMENTATION_MEMBERS, knownMembers } from '../protocol/known-members.ts'
import { toolChanges } from './tool-changes.ts'
import { hiddenTextFlags } from './tool-flags.ts'

export interface ServerIntroduction {
  readonly serverInfo?: JsonObject
  readonly instructions?: string
}

/** Facts of a server: its introduction in force, and the one that `waits` for an approval. */
type ServerFacts = Readonly<Record<string, unknown>> | null

/** Takes the introduction out of a server's facts, sent or stored: known members alone. */
export function introductionOf(facts: ServerFacts): ServerIntroduction {
  const { serverInfo, instructions } = facts ?? {}
  return {
    // Read from JSON: nothing else is in it.
    ...(isObject(serverInfo) && {
      serverInfo: knownMembers(serverInfo, IMPLEMENTATION_MEMBERS) as JsonObject,
    }),
    ...(typeof instructions === 'string' && { instructions }),
  }
}

export const pendingIntroduction = (facts: ServerFacts): ServerIntroduction | null =>
  isObject(facts?.waits) ? introductionOf(facts.waits) : null

/**
 * Returns the digest that an introduction is approved by: lower-case hex SHA-256 of its canonical form (RFC
 * 8785). Leaves out the version of the software, which changes with each release and which no caller hears.
 */
export function introductionDigest({ serverInfo, instructions }: ServerIntroduction): string {
  const { version: _, ...words } = serverInfo ?? {}
  const pinned = {
    ...(serverInfo && { serverInfo: words }),
    ...(instructions !== undefined && { instructions }),
  }
  return createHash('sha256')
    .update(canonicalize(pinned) ?? '')
    .digest('hex')
}

export const instructionsDigest = ({ instructions }: ServerIntroduction): string | null =>
  instructions === undefined ? null : createHash('sha256').update(instructions).digest('hex')

/** Says what would change if the introduction that waits were approved, as `toolChanges` does for a tool. */
export const introductionChanges = (
  before: ServerIntroduction,
  after: ServerIntroduction,
): readonly string[] => toolChanges(membersOf(before), membersOf(after))

const membersOf = ({ serverInfo, instructions }: ServerIntroduction): UnknownRecord => ({
  ...(serverInfo && { serverInfo }),
  ...(instructions !== undefined && { instructions }),
})

/** Lists the texts of an introduction that hide something: `invisible:instructions U+200B`. */
export const introductionFlags = (introduction: ServerIntroduction): readonly string[] =>
  hiddenTextFlags(membersOf(introduction))

export interface IntroductionPlan {
  readonly facts: JsonObject
  /** The digests that a row of the ledger says, since it has changed; null: it has not. */
  readonly change: JsonObject | null
  /** The differences of the introduction that waits, if it is another one than before; else empty. */
  readonly changes: readonly string[]
}

/**
 * Compares a server's introduction with the approved one (docs/threats.md#h6). The `first` reading is
 * trusted. After it another introduction waits, and the approved one stays in force, until the server gives
 * the approved one again.
 */
export function planIntroduction(before: ServerFacts, said: JsonObject, first: boolean): IntroductionPlan {
  const { serverInfo: _, instructions: __, waits: ___, ...others } = said
  const [approved, now, pending] = [introductionOf(before), introductionOf(said), pendingIntroduction(before)]
  const digest = introductionDigest(now)
  if (first) {
    const hash = instructionsDigest(now)
    const change = hash === null ? null : { instructions_sha256: hash, server_sha256: digest }
    return { facts: { ...others, ...now }, change, changes: [] }
  }
  // The same but for its version.
  if (digest === introductionDigest(approved)) {
    return { facts: { ...others, ...now }, change: pending && { server_sha256: digest }, changes: [] }
  }
  const facts = { ...others, ...approved, waits: { ...now } }
  if (pending && introductionDigest(pending) === digest) return { facts, change: null, changes: [] }
  const change = { pending_server_sha256: digest }
  return { facts, change, changes: introductionChanges(approved, now) }
}
