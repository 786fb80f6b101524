import { setImmediate as turn } from 'node:timers/promises'
import fc from 'fast-check'
import type { Answered, Json } from '../gateway.ts'
import {
  type Authority,
  altered,
  authority,
  type Changed,
  changed,
  changedBy,
  PARTS,
  PEOPLE,
} from './authority.ts'
import { anyCall, type Call } from './calls.ts'
import { type Person, person } from './people.ts'
import type { RehearsalStage } from './stage.ts'
import { type Decided, toldOf, type Verdict } from './verdicts.ts'

/** More refusals of one kind than have rows of their own in a minute (docs/ledger.md#summarised). */
const FLOOD = 64

/** What operators and principals do, and the changes that are rehearsed behind it. */
export const history = fc.record({
  people: fc.array(person, { minLength: PEOPLE, maxLength: PEOPLE }),
  before: authority,
  times: fc.array(
    fc.record({ altered, calls: fc.array(anyCall, { minLength: 5, maxLength: 12, size: 'max' }) }),
    { minLength: 1, maxLength: 3, size: 'max' },
  ),
  /** Whether the last call is sent again and again. */
  floods: fc.nat(15).map((drawn) => drawn === 0),
  changed,
})

export type History = typeof history extends fc.Arbitrary<infer H> ? H : never

interface Recorded {
  readonly id: string | null
  readonly decided: Decided
}

/** A call of a history, as it was decided, and as it is decided when it is sent again with the changes made. */
export interface Sent {
  /** Of its request; null where a summary stands for it. */
  readonly id: string | null
  readonly call: Call
  /** The readable id of its caller. */
  readonly principal: string
  /** Whether a check of the operator's own was asked then. */
  readonly checked: boolean
  readonly recorded: Decided
  readonly again: Verdict
}

/** A history that was played, what two rehearsals of it said, and what its calls came to with the changes made. */
export interface Played {
  readonly sent: readonly Sent[]
  /** Of what is so anyway, over the calls since the last change. */
  readonly same: Json
  /** When that was. ms since the epoch. */
  readonly lately: number
  /** Of the changes. */
  readonly predicted: Json
}

/** What was called between two changes, and how it was decided. */
interface Time {
  readonly authority: Authority
  readonly calls: readonly Call[]
  /** Null of a call that is none of the decisions: its form was refused, or its caller was out of service. */
  readonly recorded: readonly (Recorded | null)[]
}

/**
 * Plays a history, rehearses its changes, makes them, and sends its calls again. A rehearsal judges each call by what was so
 * at its own time: so that is brought back for the calls of each time, with the changes over it.
 */
export async function play(stage: RehearsalStage, drawn: History): Promise<Played> {
  const people = await stage.enter(drawn.people)
  const since = await nextInstant()
  const times: Time[] = []
  let [authority, lately] = [drawn.before, since]
  for (const [index, { altered, calls }] of drawn.times.entries()) {
    authority = changedBy(authority, altered)
    await stage.bring(authority)
    lately = await nextInstant()
    const floods = drawn.floods && index === drawn.times.length - 1
    const sent = floods ? [...calls, ...repeated(calls.at(-1))] : calls
    const answers = await sendAll(people, sent)
    times.push({ authority, calls: sent, recorded: await recordedOf(stage, answers, calls.length, lately) })
  }
  const [same, predicted] = await Promise.all([
    stage.rehearse(asItIs(authority), lately),
    stage.rehearse(drawn.changed, since),
  ])
  const sent: Sent[] = []
  for (const time of times) {
    await stage.bring(changedBy(time.authority, drawn.changed))
    sent.push(...(await sentAgain(stage, people, time)))
  }
  return { sent, same, lately, predicted }
}

const repeated = (call: Call | undefined): readonly Call[] =>
  call ? Array.from({ length: FLOOD }, () => call) : []

/** How calls were decided. Those behind the first `own` repeat the last one of these: a summary stands for some of them. */
async function recordedOf(
  stage: RehearsalStage,
  answers: readonly Answered[],
  own: number,
  since: number,
): Promise<readonly (Recorded | null)[]> {
  const ids = answers.map(idOf)
  const found = await stage.decisions(ids)
  const repeatedOne = found.get(ids[own - 1] ?? '')
  const without = ids.slice(own).filter((id) => !found.has(id)).length
  const at = without > 0 && repeatedOne?.status === 'denied' ? await stage.summarised(without, since) : null
  return ids.map((id, index) => {
    const decided = found.get(id)
    if (decided) return decided.status === 'invalid' ? null : { id, decided }
    if (index < own || at === null || !repeatedOne) return null
    return { id: null, decided: { ...repeatedOne, tool: null, model: null, at } }
  })
}

/** Sends the calls of a time again, and puts together those that were decisions. */
async function sentAgain(
  stage: RehearsalStage,
  people: readonly Person[],
  { authority: then, calls, recorded }: Time,
): Promise<readonly Sent[]> {
  const answers = await sendAll(people, calls)
  const found = await stage.decisions(answers.map(idOf))
  const checked = then.at(-1)?.checked === true
  return calls.flatMap((call, index) => {
    const [first, second] = [recorded[index], answers[index]]
    if (!first || !second) return []
    const again = found.get(idOf(second)) ?? toldOf(second)
    return [
      { id: first.id, call, principal: people[call.who]?.id ?? '', checked, recorded: first.decided, again },
    ]
  })
}

/** An instant behind all that was answered so far: a row has the millisecond of its arrival. */
async function nextInstant(): Promise<number> {
  const now = Date.now()
  while (Date.now() <= now) await turn()
  return Date.now()
}

/** Sends calls, those of one caller one after the other. Resolves with the answers in the order of the calls. */
async function sendAll(people: readonly Person[], calls: readonly Call[]): Promise<readonly Answered[]> {
  const answers: Answered[] = []
  const sending = people.map(async (person, who) => {
    for (const [index, call] of calls.entries())
      if (call.who === who) answers[index] = await person.send(call)
  })
  await Promise.all(sending)
  return answers
}

/** Changes to what is so. */
const asItIs = (authority: Authority): Changed =>
  authority.map((members, index) => {
    const { checked: _, ...settable } = members
    return PARTS[index]?.kind === 'active' && members.is_active === true ? null : settable
  })

const idOf = ({ headers }: Answered): string => String(headers['x-request-id'])
