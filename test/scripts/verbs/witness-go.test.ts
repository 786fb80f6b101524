import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFile, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { type Json, scratch } from '../../support/gateway.ts'
import { built } from '../../support/go/built.ts'
import { type Conversation, conversation } from '../../support/go/conversation.ts'
import { NODE_COMPILE_CACHE } from '../../support/run.ts'
import { withoutStrace } from '../../support/strace.ts'

// A program of two hundred packages is compiled first, on a machine that may be busy.
t.setTimeout(300_000)
const { program, missing } = await built('peers')
const SALLYPORT = join(import.meta.dirname, '../../../scripts/sallyport.ts')
const ORIGIN = 'example.org/acme/audit'

interface Running {
  readonly url: string
  readonly vkey: string
  readonly kill: () => Promise<void>
  /** Resolves once it has ended by itself. */
  readonly ended: Promise<unknown>
}

/** Our witness of a log, as a process of its own; `under`: a program that runs it. Null: it ended before it listened. */
async function started(
  t: Test,
  state: string,
  logs: readonly string[],
  under: readonly string[] = [],
): Promise<Running | null> {
  const args = ['--name', 'witness.example.org', '--state', state, '--listen', '127.0.0.1:0']
  const known = logs.flatMap((vkey) => ['--log', vkey])
  const [command = '', ...rest] = [...under, process.execPath, SALLYPORT, 'witness', ...args, ...known]
  // A group of its own: what runs it would be killed alone.
  const child = spawn(command, rest, {
    // One thread for files: strace counts the calls of each.
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, UV_THREADPOOL_SIZE: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const ended = once(child, 'close')
  const kill = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null && child.pid) process.kill(-child.pid, 'SIGKILL')
    await ended
  }
  t.teardown(kill)
  const said = Promise.all([
    once(createInterface({ input: child.stdout }), 'line'),
    once(createInterface({ input: child.stderr }), 'line'),
  ])
  const lines = await Promise.race([said, ended.then(() => null)])
  if (!lines) return null
  const [[vkey], [listening]] = lines
  const [, url = ''] = /(http:\S+)$/.exec(String(listening)) ?? []
  return { url, vkey: String(vkey), kill, ended }
}

const feeder = (t: Test): Promise<Conversation> => conversation(t, program, ['feed', ORIGIN])

await t.test(
  'C2SP tlog-witness: our witness gives a client that nobody here wrote what it asks for, and refuses what it must',
  { skip: missing },
  async (t) => {
    const { first, ask } = await feeder(t)
    const witness = await started(t, join(await scratch(t), 'state'), first.vkeys)
    if (!witness) return t.fail('it does not start')
    const offer = (what: object): Promise<Json> => ask({ url: witness.url, witness: witness.vkey, ...what })
    const [cosigned, stale] = ['cosigned', 'old size != current']
    const now = Math.floor(Date.now() / 1_000)
    t.match(await offer({ size: 5 }), { said: cosigned, at: Number })
    t.ok(Math.abs((await offer({ old: 5, size: 5 })).at - now) < 60, 'the same once more, at its time')
    t.match(await offer({ old: 5, size: 300, by: 'both' }), { said: cosigned })
    t.match(await offer({ size: 5 }), { said: stale, has: 300 }, 'one that has forgotten all')
    t.match(await offer({ old: 5, size: 400 }), { said: stale, has: 300 })
    t.match(await offer({ old: 400, size: 500 }), { said: stale, has: 300 })
    const cases: readonly (readonly [string, object, string])[] = [
      ['a smaller tree', { old: 300, size: 200 }, 'old size > current'],
      ['another tree of the size', { old: 300, size: 300, fork: true }, 'consistency proof invalid'],
      ['another tree', { old: 300, size: 400, fork: true }, 'consistency proof invalid'],
      ["another tree's proof", { old: 300, size: 400, forkedProof: true }, 'consistency proof invalid'],
      ['a name that is not known', { old: 300, size: 400, origin: 'example.org/other' }, 'unknown log'],
      ['a key that is not known', { old: 300, size: 400, by: 'stranger' }, 'no valid signatures'],
      ['a good signature beside a wrong one', { old: 300, size: 400, by: 'liar' }, 'no valid signatures'],
    ]
    for (const [name, what, said] of cases) t.match(await offer(what), { said }, name)
    t.match(
      await offer({ old: 300, size: 300, extension: 'a line of the log\n' }),
      { said: cosigned },
      'a line behind the root is cosigned with it',
    )
    t.match(await offer({ old: 300, size: 2048 }), { said: cosigned }, 'none of that has moved it')

    const post = async (body: string | Buffer) => {
      const { status, headers } = await fetch(`${witness.url}/add-checkpoint`, { method: 'POST', body })
      return { status, connection: headers.get('connection') }
    }
    for (const [name, body] of [
      ['no request', 'hello'],
      ['no old size', `old\n\n${ORIGIN}\n1\n`],
      ['an old size with a zero in front', `old 01\n\n${ORIGIN}\n1\n`],
      ['a hash that is none', `old 1\nAAAA\n\n${ORIGIN}\n1\n`],
      ['no checkpoint', 'old 0\n\n'],
      ['bytes that are no text', Buffer.from(`old 0\n\n${ORIGIN}\n\xff\n`, 'latin1')],
    ] as const)
      t.same(await post(body), { status: 400, connection: 'keep-alive' }, name)
    t.same(await post('x'.repeat(200_000)), { status: 413, connection: 'close' }, 'more than it may have')
  },
)

/** What a witness has cosigned, by anybody's account. */
interface Cosigned {
  readonly size: number
  readonly fork: boolean
  readonly root: string
}

/** Offers both trees at once; resolves with what was cosigned. */
async function race(
  ask: Conversation['ask'],
  { url, vkey }: Pick<Running, 'url' | 'vkey'>,
  old: number,
  sizes: readonly number[],
): Promise<readonly Cosigned[]> {
  const offers = sizes.flatMap((size) => [true, false].map((fork) => ({ size, fork })))
  const answers = await Promise.all(offers.map((what) => ask({ url, witness: vkey, old, ...what })))
  return offers.flatMap((what, index) => {
    const { said, root } = answers[index]
    return said === 'cosigned' ? [{ ...what, root }] : []
  })
}

/** Fails where two trees were cosigned, or two roots for one size. */
function oneLog(t: Test, all: readonly Cosigned[], name: string): void {
  t.ok(new Set(all.map(({ fork }) => fork)).size <= 1, `${name}: one tree of ${all.length} cosigned`)
  const roots = new Map(all.map(({ size, root }) => [size, root]))
  t.ok(
    all.every(({ size, root }) => roots.get(size) === root),
    `${name}: one root for each size`,
  )
}

const alive = ({ url }: Running): Promise<boolean> =>
  fetch(url).then(
    () => true,
    () => false,
  )

/** The calls by which a checkpoint comes to the disk, and at which of each the witness is killed. */
const MOMENTS = [
  ['fsync', 1],
  ['rename', 1],
  ['fsync', 2],
  ['fsync', 3],
  ['rename', 2],
  ['fsync', 5],
  ['rename', 3],
  ['fsync', 6],
  ['fsync', 8],
  ['fsync', 9],
] as const

await t.test(
  'kill -9 at every write of a checkpoint leaves no witness that cosigns another tree, or has forgotten one',
  { skip: missing || withoutStrace() },
  async (t) => {
    const { first, ask } = await feeder(t)
    const [vkey] = first.vkeys
    const root = await scratch(t)
    const made = await started(t, join(root, 'first'), [vkey])
    await made?.kill()
    let killed = 0
    for (const [call, nth] of MOMENTS) {
      const name = `${call} ${nth}`
      const state = join(root, name.replace(' ', ''))
      await mkdir(state, { mode: 0o700 })
      await copyFile(join(root, 'first/witness.key'), join(state, 'witness.key'))
      const at = ['-e', `trace=${call}`, '-e', `inject=${call}:signal=KILL:when=${nth}`]
      const doomed = await started(t, state, [vkey], ['strace', '-f', '-qq', '-o', '/dev/null', ...at])
      if (!doomed) return t.fail(`${name}: it does not start`)
      const before = [...(await race(ask, doomed, 0, [5])), ...(await race(ask, doomed, 5, [9]))]
      // Alive: it has made fewer calls than that.
      if (!(await alive(doomed))) killed += 1
      await doomed.kill()
      const again = await started(t, state, [vkey])
      if (!again) return t.fail(`${name}: it does not start again`)
      const { has } = await ask({ url: again.url, witness: again.vkey, old: 100, size: 200 })
      const most = Math.max(0, ...before.map(({ size }) => size))
      t.ok(has >= most, `${name}: ${has} is remembered, and ${most} was cosigned`)
      const after = await race(
        ask,
        again,
        has,
        [has, 20].filter((size) => size > 0),
      )
      t.ok(after.length > 0, `${name}: it goes on`)
      oneLog(t, [...before, ...after], name)
      await again.kill()
    }
    t.equal(killed, MOMENTS.length - 1, 'all but the last were reached')
  },
)

await t.test(
  'kill -9 amid a crowd of both trees leaves one that is cosigned, also over many starts',
  { skip: missing },
  async (t) => {
    const { first, ask } = await feeder(t)
    const state = join(await scratch(t), 'state')
    const all: Cosigned[] = []
    let has = 0
    for (const answers of [1, 2, 5, 30]) {
      const witness = await started(t, state, first.vkeys)
      if (!witness) return t.fail('it does not start')
      let seen = 0
      const counted: Conversation['ask'] = async (what) => {
        const answer = await ask(what)
        seen += 1
        if (seen === answers) await witness.kill()
        return answer
      }
      const sizes = Array.from({ length: 15 }, (_, index) => has + 1 + index)
      all.push(...(await race(counted, witness, has, sizes)))
      await witness.kill()
      const again = await started(t, state, first.vkeys)
      if (!again) return t.fail('it does not start again')
      has = (await ask({ url: again.url, witness: again.vkey, old: 1_000, size: 2_000 })).has
      t.ok(has >= Math.max(0, ...all.map(({ size }) => size)), `${has} rows are remembered`)
      await again.kill()
    }
    oneLog(t, all, 'at the end')
    t.ok(all.length > 1, `${all.length} were cosigned`)
  },
)
