import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '../../../..')
const ROOM = 'proxy/telemetry/otlp/'
/** Read with every other file's options. */
const ALWAYS = ['telemetry/otlp/options.ts']

t.test('no code of the exports is loaded until a file names a collector', (t) => {
  const files = ['plugins', 'proxy', 'scripts'].flatMap((folder) =>
    globSync(`${folder}/**/*.ts`, { cwd: ROOT }),
  )
  const loads = files
    .filter((file) => !file.startsWith(ROOM))
    .flatMap((file) =>
      [
        ...readFileSync(join(ROOT, file), 'utf8').matchAll(
          /^import (?!type\b)[^']*'([^']*telemetry\/otlp\/[^']*)'/gm,
        ),
      ].map(([, target = '']) => `${file}: ${target}`),
    )
  t.same(
    loads.filter((one) => !ALWAYS.some((name) => one.endsWith(name))),
    [],
    'a type is no code, and the switch imports when it is needed',
  )
  t.end()
})
