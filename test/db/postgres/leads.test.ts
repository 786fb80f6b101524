import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { endPresence } from '../../support/db/postgres/replica.ts'
import { eventually } from '../../support/settled.ts'

const server = await cluster()
const PROGRAM = join(import.meta.dirname, '../../support/db/postgres/lead.ts')
/** What the issue promises. ms. */
const TAKEN_OVER_MS = 5_000

interface Candidate {
  readonly child: ChildProcess
  readonly leads: () => boolean
}

function candidate(t: Test, url: string): Candidate {
  const child = spawn(process.execPath, [PROGRAM, url, 'a-task'], { stdio: ['ignore', 'pipe', 'inherit'] })
  let leads = false
  child.stdout.on('data', (chunk: Buffer) => {
    leads = chunk.toString().trimEnd().endsWith('leads')
  })
  t.teardown(() => child.kill('SIGKILL'))
  return { child, leads: () => leads }
}

const leaders = (all: readonly Candidate[]): readonly Candidate[] => all.filter(({ leads }) => leads())

async function three(t: Test) {
  const url = await server.migrated()
  const all = [candidate(t, url), candidate(t, url), candidate(t, url)]
  const [leader] = await eventually(
    () => leaders(all),
    (found) => found.length > 0,
  )
  if (!leader) throw new Error('nobody leads')
  return { url, all, leader, others: all.filter((one) => one !== leader) }
}

async function takenOver(t: Test, others: readonly Candidate[]): Promise<void> {
  const since = performance.now()
  const found = await eventually(
    () => leaders(others),
    ({ length }) => length > 0,
  )
  t.equal(found.length, 1, 'one leads')
  t.ok(performance.now() - since < TAKEN_OVER_MS, `after ${Math.round(performance.now() - since)} ms`)
}

t.test('a leader that is killed is followed by one other within 5 s', async (t) => {
  const { all, leader, others } = await three(t)
  t.equal(leaders(all).length, 1)
  leader.child.kill('SIGKILL')
  await takenOver(t, others)
})

t.test('a leader that is frozen is followed within 5 s, and does not lead when it wakes', async (t) => {
  const { leader, others } = await three(t)
  leader.child.kill('SIGSTOP')
  await takenOver(t, others)
  leader.child.kill('SIGCONT')
  await eventually(leader.leads, (leads) => !leads)
  t.notOk(leader.leads())
  t.equal(leaders(others).length, 1)
})

t.test('a leader whose session is ended does not lead until it has the task anew', async (t) => {
  const url = await server.migrated()
  const [one, other] = [await openDatabase(url), await openDatabase(url)]
  t.teardown(() => Promise.all([one.close(), other.close()]))
  await eventually(
    () => one.leads('task'),
    (leads) => leads,
  )
  t.notOk(other.leads('task'))
  await endPresence(url)
  await eventually(
    () => one.leads('task'),
    (leads) => !leads,
  )
  const found = await eventually(
    () => [one, other].filter((database) => database.leads('task')),
    ({ length }) => length > 0,
  )
  t.equal(found.length, 1)
})

t.test('each task has a leader of its own', async (t) => {
  const url = await server.migrated()
  const [one, other] = [await openDatabase(url), await openDatabase(url)]
  t.teardown(() => Promise.all([one.close(), other.close()]))
  await eventually(
    () => one.leads('first'),
    (leads) => leads,
  )
  t.ok(
    await eventually(
      () => other.leads('second'),
      (leads) => leads,
    ),
  )
})
