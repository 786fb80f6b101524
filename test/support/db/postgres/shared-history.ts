import type { Test } from 'tap'
import { type LedgerEntry, LedgerError, type LedgerUnit } from '../../../../db/ledger/record/entry.ts'
import { authorityUnchanged, insertPin } from '../../../../db/principals/pins.ts'
import { insertPrincipal, setCapabilities } from '../../../../db/principals/write.ts'
import { changed, decided, ended, loaded, started } from '../history.ts'
import { AT } from '../scratch-ledger.ts'
import { type Replica, replica } from './replica.ts'

/** What became of a history: how many decisions are in it, and how many were refused because a change came first. */
export interface Lived {
  readonly replica: Replica
  readonly decisions: number
  readonly stale: number
}

interface Known {
  readonly id: string
  revision: number
  capable: boolean
}

const PRINCIPALS = 3
const WORKERS = 4
const TURNS = 12

/**
 * Lets several replicas on one database work at once: changes of capabilities, decisions by what they were last known
 * to be, allowed and refused, and outcomes, some of them written by another replica. One more replica starts in the
 * middle. All of it is by chance, and the same for the same `seed` but for who comes first. At the end stands what might else be
 * missing by chance: a change, an allowed decision that rests on it, and its outcome `unknown` from another replica.
 */
export async function sharedHistory(t: Test, url: string, writers: number, seed: number): Promise<Lived> {
  const random = chance(seed)
  const replicas = [await begin(t, url)]
  const [first] = replicas as [Replica]
  const known = Array.from({ length: PRINCIPALS }, (_, n) => ({
    id: `acme::bot-${n}`,
    revision: 1,
    capable: true,
  }))
  for (const { id } of known) await first.ledger.commit(creation(first, id))
  while (replicas.length < writers) replicas.push(await begin(t, url))
  let [decisions, stale, calls] = [0, 0, 0]

  /** Returns the decision where it was stored, and is one that an outcome follows. */
  async function decide(on: Replica, { id, revision, capable }: Known): Promise<LedgerEntry | null> {
    calls += 1
    const refusal = {
      status: 'denied',
      more: { reason: 'capability_missing', required_capability: 'llm.chat' },
    }
    const values = {
      ...{ principal_id: id, cert_thumbprint: thumbprintOf(id), authority: { revision } },
      ...(capable ? {} : refusal),
    }
    const decision = decided(calls, values)
    const assertions = [authorityUnchanged(on.database)('agent', id, revision)]
    if (!(await isStored(on, { assertions, entries: [decision] }))) {
      stale += 1
      return null
    }
    decisions += 1
    return capable ? decision : null
  }

  async function call(on: Replica, of: Known): Promise<void> {
    const decision = await decide(on, of)
    if (!decision || random() < 0.1) return
    if (random() < 0.8) await on.ledger.commit({ entries: [ended(decision)], lazy: true })
    else await leave(pick(replicas), decision)
  }

  async function change(on: Replica, of: Known): Promise<void> {
    const { id, revision, capable } = of
    const capabilities = capable ? [] : ['llm.chat']
    const isFirst = await isStored(on, {
      assertions: [authorityUnchanged(on.database)('agent', id, revision)],
      statements: [setCapabilities(on.database, { type: 'agent', id, at: AT, revision, capabilities })],
      entries: [changed('agent.capabilities_patched', revision + 1, { ...identityOf(id), capabilities })],
    })
    if (isFirst) Object.assign(of, { revision: revision + 1, capable: !capable })
  }

  const pick = <One>(list: readonly One[]): One => list[Math.floor(random() * list.length)] as One
  const work = async (on: Replica): Promise<void> => {
    for (let turn = 0; turn < TURNS; turn += 1) await (random() < 0.3 ? change : call)(on, pick(known))
  }
  const all = replicas.flatMap((on) => Array.from({ length: WORKERS }, () => work(on)))
  all.push(begin(t, url).then(work))
  await Promise.all(all)
  const [one] = known as [Known, ...Known[]]
  do await change(first, one)
  while (!one.capable)
  const last = await decide(first, one)
  if (!last) throw new Error('the last call of the history was not allowed')
  await leave(replicas[1] ?? first, last)
  return { replica: first, decisions, stale }
}

/** Says of a call that its outcome is unknown. */
const leave = ({ ledger }: Replica, decision: LedgerEntry) =>
  ledger.commit({ entries: [{ ...ended(decision), status: 'unknown' }] })

async function begin(t: Test, url: string): Promise<Replica> {
  const made = await replica(t, url)
  await made.ledger.commit({ entries: [started, loaded()] })
  return made
}

const creation = ({ database }: Replica, id: string): LedgerUnit => ({
  statements: [
    insertPrincipal(database, {
      ...{ type: 'agent', id, ref: id, name: id.slice(6), displayName: null, capabilities: ['llm.chat'] },
      ...{ enrollmentMethod: 'minted', spiffeId: null, dpopJkt: null, federated: false, at: AT },
    }),
    insertPin(database, {
      ...{
        type: 'agent',
        id,
        thumbprint: thumbprintOf(id),
        notBefore: AT,
        notAfter: AT + 86_400_000,
        at: AT,
      },
    }),
  ],
  entries: [changed('agent.created', 1, identityOf(id))],
})

/** The certificate of a principal: its number, 64 times. */
const thumbprintOf = (id: string): string => id.slice(-1).repeat(64)
const identityOf = (id: string) => ({ subject: id, thumbprints: [[thumbprintOf(id), null]] })

async function isStored({ ledger }: Replica, unit: LedgerUnit): Promise<boolean> {
  try {
    await ledger.commit(unit)
    return true
  } catch (error) {
    if (error instanceof LedgerError && error.code === 'stale') return false
    throw error
  }
}

/** Numbers from 0 to 1 by chance, the same for the same seed (mulberry32). */
export function chance(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
