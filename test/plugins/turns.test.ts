import t from 'tap'
import { Refusal } from '../../plugins/refusal.ts'
import { eventLoopTurn, runInSlices, runPromptly, type WorkSteps } from '../../plugins/turns.ts'
import { CallHangup } from '../../proxy/http/open-calls.ts'

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Work of so many steps, each of which takes a millisecond and is noted. */
function* steps(count: number, note: () => void): WorkSteps<number> {
  for (let step = 0; step < count; step += 1) {
    const until = performance.now() + 1
    while (performance.now() < until);
    note()
    yield
  }
  return count
}

await t.test('A5: several pieces of work get one slice in a turn of the loop together', async (t) => {
  let turns = 0
  let over = false
  const worked = new Map<number, Set<string>>()
  const note = (name: string) => () => {
    worked.set(turns, (worked.get(turns) ?? new Set()).add(name))
  }
  const work = Promise.all(['a', 'b', 'c'].map((name) => runInSlices(steps(20, note(name))))).finally(() => {
    over = true
  })
  while (!over) {
    await nextTurn()
    turns += 1
  }
  t.strictSame(await work, [20, 20, 20])
  t.ok(
    [...worked.values()].every((names) => names.size === 1),
    'no two in one turn',
  )
  const order = [...worked.values()].map((names) => [...names].join(''))
  t.strictSame(order.slice(0, 6), ['a', 'b', 'c', 'a', 'b', 'c'], 'each in its turn')
})

await t.test('A5: what work throws reaches its own caller, and the others go on', async (t) => {
  function* broken(): WorkSteps<never> {
    yield
    throw new Error('broken')
  }
  const others = runInSlices(steps(5, () => {}))
  await t.rejects(runInSlices(broken()), { message: 'broken' })
  t.equal(await others, 5)
  await eventLoopTurn()
})

await t.test('A5: work for a caller who has hung up is left undone', async (t) => {
  const gone = new AbortController()
  let done = 0
  const work = runInSlices(
    steps(1_000, () => {
      done += 1
      if (done === 2) gone.abort()
    }),
    gone.signal,
  )
  await t.rejects(work, { reason: 'client_gone', message: /disconnected before the answer/ })
  t.ok(done < 10)
  const revoked = AbortSignal.abort(new Refusal('authority_revoked'))
  await t.rejects(
    runInSlices(
      steps(1, () => {}),
      revoked,
    ),
    { reason: 'authority_revoked', status: 403, message: /./ },
  )
})

await t.test('A5: work is done at once while this turn of the loop has time for it', async (t) => {
  const hangup = new CallHangup()
  const short = () =>
    runPromptly(
      steps(0, () => {}),
      hangup,
    )
  t.equal(short(), 0, 'what is short')
  await nextTurn()
  let done = 0
  const note = () => {
    done += 1
  }
  const long = runPromptly(steps(40, note), hangup)
  t.ok(done > 0 && done < 20, `${done} of 40 steps at once: no more than a slice`)
  t.ok(short() instanceof Promise, 'nothing more in this turn, whoever asks')
  t.equal(await long, 40)
  hangup.hangUp()
  await t.rejects(async () => short(), new Refusal('client_gone'))
})
