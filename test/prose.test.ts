import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

// A docstring says what a thing is or does, the verb or the noun first (CONTRIBUTING.md#how-it-is-written).
const ROOT = join(import.meta.dirname, '..')
const FOLDERS = ['proxy', 'plugins', 'db', 'certs', 'scripts']

/** Words that make a reader wait for the subject. */
const LATE = /\/\*\*[\s*]*(What|Whether|Who|Whose|How|Where|Of|Those|As|By|Its|In|Behind)\b/g

/** Words that no native reader expects in a message, a page or a help. `where` and `behind` depend on what they say. */
const ODD = / (?:anew|beside|all the same|in vain)\b/g

/** A literal text of one line, or a template. */
const TEXT = /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g

/** Comments, which users do not read. */
const COMMENT = /\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm

const sources = (): readonly string[] =>
  FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.{ts,js}`, { cwd: ROOT }))

t.test('a docstring begins with the verb or the noun', (t) => {
  const files = sources()
  t.ok(files.length > 500, `${files.length} files were read`)
  const late = files.flatMap((file) => {
    const text = readFileSync(join(ROOT, file), 'utf8')
    return [...text.matchAll(LATE)].map(
      ({ 1: word, index }) => `${file}:${text.slice(0, index).split('\n').length}: ${word} …`,
    )
  })
  t.same(late, [])
  t.end()
})

t.test('what users read has again, alongside and anyway, and none of the words that they stand for', (t) => {
  const odd = sources().flatMap((file) => {
    const text = readFileSync(join(ROOT, file), 'utf8').replaceAll(COMMENT, (comment) =>
      comment.replaceAll(/[^\n]/g, ''),
    )
    return [...text.matchAll(TEXT)].flatMap(({ 0: literal, index }) =>
      [...literal.matchAll(ODD)].map(
        ({ 0: word }) => `${file}:${text.slice(0, index).split('\n').length}:${word}`,
      ),
    )
  })
  t.same(odd, [])
  t.end()
})
