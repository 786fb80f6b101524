import { globSync } from 'node:fs'
import t from 'tap'
import { testFiles } from './support/db/on-both-engines.ts'
import { isLong, LONG, looksAtClock, measures, needsProcess, OWN_PROCESS, PATIENT } from './support/lanes.ts'

/** They start a program of others which takes seconds: whoever reaches one is in the long lane. */
const DEAR = ['go/built', 'haproxy', 'oidc/chromium'].map((name) => `test/support/${name}.ts`)

/** Every page at every width, each loaded once: whoever changes one is to see at once that it can be read. */
const WORTH_IT: readonly string[] = ['test/proxy/dashboard/geometry.test.ts']

const files = globSync('test/**/*.test.ts').toSorted()

t.test('every place of the long lane is one, and most tests are in the short one', (t) => {
  const idle = Object.keys(LONG).filter((place) => !files.some((file) => file.startsWith(place)))
  t.same(idle, [], 'no reason outlives its test')
  const long = files.filter(isLong)
  t.ok(long.length < files.length / 6, `${long.length} of ${files.length} files`)
  t.end()
})

t.test('a test that needs a dear program of others is in the long lane', (t) => {
  const reached = testFiles().filter(({ reaches }) => DEAR.some((program) => reaches.has(program)))
  const short = reached.map(({ file }) => file).filter((file) => !isLong(file) && !WORTH_IT.includes(file))
  t.ok(reached.length > 5)
  t.same(short, [])
  t.end()
})

t.test('a test that measures runs with few others, and a patient one with as many as all', (t) => {
  const idle = PATIENT.filter((file) => !files.includes(file) || !looksAtClock(file))
  t.same(idle, [], 'each looks at a clock')
  for (const name of ['attacks/lists-loop', 'attacks/bodies', 'proxy/mcp/eras'])
    t.ok(measures(`test/${name}.test.ts`), name)
  // A function of its own that is called `held` measures nothing.
  for (const name of ['proxy/admin/sets/bulk', 'proxy/tls/inbound'])
    t.notOk(measures(`test/${name}.test.ts`), name)
  t.end()
})

t.test('what looks at the whole process or changes it has one of its own, and most tests share one', (t) => {
  const idle = Object.keys(OWN_PROCESS).filter((place) => !files.some((file) => file.startsWith(place)))
  t.same(idle, [], 'no reason outlives its test')
  // An environment that is changed, handlers of the process, and what is counted by it.
  for (const name of [
    'proxy/egress/agent',
    'attacks/descriptors',
    'attacks/few-threads',
    'db/database',
    'proxy/shadow',
  ])
    t.ok(needsProcess(`test/${name}.test.ts`), name)
  t.notOk(needsProcess('test/spec/7-errors.test.ts'))
  const sharing = files.filter((file) => !measures(file) && !needsProcess(file))
  t.ok(sharing.length > files.length * 0.7, `${sharing.length} of ${files.length} files`)
  t.end()
})
