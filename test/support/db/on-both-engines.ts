import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

const ROOT = join(import.meta.dirname, '../../..')
/** The one file that reads TEST_ENGINE: what does not reach it is the same test on every engine. */
const CHOOSES = 'test/support/db/engine.ts'
/** They choose their engines themselves, whatever the run's is, and reach the choice by helpers alone. */
export const CHOOSE_THEMSELVES: Readonly<Record<string, string>> = {
  'test/cluster/': 'replicas share a PostgreSQL of their own',
  'test/db/postgres/': 'how PostgreSQL is used: on a server of its own',
  'test/db/sqlite/': 'how SQLite is used',
  'test/deploy/': 'what is deployed names its engine',
  'test/proxy/replicas': 'replicas share a PostgreSQL of their own',
  'test/proxy/workers/': 'both engines, one after the other',
  'test/scripts/cluster/': 'no row is stored',
  'test/scripts/verbs/cluster.test.ts': 'it brings a PostgreSQL of its own',
}
const choosesItself = (file: string): boolean =>
  Object.keys(CHOOSE_THEMSELVES).some((place) => file.startsWith(place))
/** What a test must reach to have a database at all. */
const DATABASE = /^db\/(engine|sqlite|postgres)\b/

/** A test file, as a path from the root, and what it reaches. */
interface TestFile {
  readonly file: string
  /** It runs once for each engine: its database is the one that TEST_ENGINE names. */
  readonly runsOnBoth: boolean
  /** It opens a database in some way, or starts a program that does. */
  readonly hasDatabase: boolean
}

/**
 * Every test of the repository, by name. What a file reaches is what it imports, and every TypeScript file that a
 * text of its source names: programs that it starts. NOT what it puts together at run time.
 */
export function testFiles(): readonly TestFile[] {
  const files = globSync('test/**/*.test.ts', { cwd: ROOT }).toSorted()
  return files.map((file) => {
    const reached = reachedFrom(file)
    const hasDatabase = [...reached].some((path) => DATABASE.test(path))
    return { file, runsOnBoth: reached.has(CHOOSES) && !choosesItself(file), hasDatabase }
  })
}

const named = new Map<string, readonly string[]>()

function reachedFrom(file: string): ReadonlySet<string> {
  const reached = new Set([file])
  for (const path of reached) for (const next of namedIn(path)) reached.add(next)
  return reached
}

/** The files of ours that a source names. */
function namedIn(file: string): readonly string[] {
  const known = named.get(file)
  if (known !== undefined) return known
  const text = readFileSync(join(ROOT, file), 'utf8')
  // A type is gone before anything runs.
  const running = text.replaceAll(/^import type [^;]*? from '[^']+'/gm, '')
  const found = [...running.matchAll(/['"`]([\w./-]+\.ts)['"`]/g)].flatMap(([, path = '']) =>
    [join(dirname(file), path), path].filter((each) => existsSync(join(ROOT, each))).slice(0, 1),
  )
  const files = found.map((path) => relative(ROOT, join(ROOT, path)))
  named.set(file, files)
  return files
}

if (import.meta.main) {
  const both = testFiles().filter(({ runsOnBoth }) => runsOnBoth)
  process.stdout.write(`${both.map(({ file }) => file).join('\n')}\n`)
}
