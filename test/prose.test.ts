import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

// A docstring says what a thing is or does, the verb or the noun first (CONTRIBUTING.md#how-it-is-written).
const ROOT = join(import.meta.dirname, '..')
const FOLDERS = ['proxy', 'plugins', 'db', 'certs', 'scripts']

/** Words that make a reader wait for the subject. */
const LATE = /\/\*\*[\s*]*(What|Whether|Who|How|Where|Of|Those|As|By|Its|In|Behind)\b/g

/** Not yet mended. Nothing is added here. */
const UNMENDED: readonly string[] = [
  ...['proxy/admin/', 'proxy/openapi/', 'proxy/wiring/', 'proxy/routes.ts', 'proxy/pipelines.ts'],
]

t.test('a docstring begins with the verb or the noun', (t) => {
  const files = FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.{ts,js}`, { cwd: ROOT }))
  t.ok(files.length > 500, `${files.length} files were read`)
  const late = files
    .filter((file) => !UNMENDED.some((start) => file.startsWith(start)))
    .flatMap((file) => {
      const text = readFileSync(join(ROOT, file), 'utf8')
      return [...text.matchAll(LATE)].map(
        ({ 1: word, index }) => `${file}:${text.slice(0, index).split('\n').length}: ${word} …`,
      )
    })
  t.same(late, [])
  t.end()
})
