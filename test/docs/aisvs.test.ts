import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '../..')
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')

/** The sections of AISVS 1.0, chapters 9 and 10, and how many requirements each has. */
const REQUIREMENTS = {
  ...{ '9.1': 5, '9.2': 6, '9.3': 6, '9.4': 4, '9.5': 5, '9.6': 6, '9.7': 5, '9.8': 6 },
  ...{ '10.1': 2, '10.2': 7, '10.3': 5, '10.4': 7 },
}

const verbs = read('scripts/sallyport.ts')
const isVerb = (verb: string): boolean => new RegExp(`^ {2}'?${verb}'?: \\[`, 'm').test(verbs)

const entries = [...read('docs/aisvs.md').matchAll(/^- \*\*(\d+\.\d+\.\d+)\*\* (.+(?:\n {2}.+)*)/gm)].map(
  ([, id = '', text = '']) => ({ id, text: text.replaceAll(/\s+/g, ' ') }),
)

t.test('each requirement has one entry, in order, with one of the four words', (t) => {
  const ids = Object.entries(REQUIREMENTS).flatMap(([section, count]) =>
    Array.from({ length: count }, (_, n) => `${section}.${n + 1}`),
  )
  t.same(
    entries.map(({ id }) => id),
    ids,
  )
  const odd = entries.filter(({ text }) => !/^\*[^*]+\*\s\*\*(?:Met|Part|No|Elsewhere)\*?\.?\*/.test(text))
  t.same(odd, [])
  t.end()
})

t.test('what is met, or in part, names a page, a command or a test that shows it', (t) => {
  const bare = entries.filter(({ text }) => /\*\*(?:Met|Part)/.test(text) && shownBy(text).length === 0)
  // Nothing can show that there is no such transport.
  t.same(
    bare.map(({ id }) => id),
    ['10.3.2'],
  )
  t.end()
})

t.test('each test and command that is named exists', (t) => {
  const makefile = read('Makefile')
  const scripts = Object.keys(JSON.parse(read('package.json')).scripts)
  for (const { id, text } of entries)
    for (const named of shownBy(text)) {
      const [, make] = /^make ([\w-]+)/.exec(named) ?? []
      const [, npm] = /^npm run ([\w-]+)/.exec(named) ?? []
      const [, verb] = /^\.\/sallyport ([\w-]+)/.exec(named) ?? []
      if (named.startsWith('test/')) t.ok(existsSync(join(ROOT, named)), `${id}: ${named}`)
      if (make !== undefined) t.match(makefile, new RegExp(`^${make}: `, 'm'), `${id}: ${named}`)
      if (npm !== undefined) t.ok(scripts.includes(npm), `${id}: ${named}`)
      if (verb !== undefined) t.ok(isVerb(verb), `${id}: ${named}`)
    }
  t.end()
})

/** The pages, commands and tests of an entry. test/docs.test.ts opens the pages. */
function shownBy(text: string): readonly string[] {
  const commands = text.matchAll(/`((?:make|npm run|\.\/sallyport) [^`]+|test\/[^`]+)`/g)
  const pages = text.matchAll(/\]\(([^)]+)\)/g)
  return [...commands, ...pages].map(([, named = '']) => named)
}
