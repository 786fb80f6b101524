import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..')
/** Papers that are elsewhere, as is any issue: a reader of the repository cannot look them up. */
const PAPERS =
  'WIRE|AUDIT|HOUSE|RECORD|DETAILS|ECOSYSTEM|PERFORMANCE|DISSECTION|STYLE|OPERATORS|REHEARSAL|DASHBOARD|BUDGETS'
const PAGES_OF_OTHERS = new RegExp(
  String.raw`\b(?:${PAPERS})\.md\b|(?<![\w.-])(?:${PAPERS}|SECURITY)(?: §|:? [a-z]|\n \* [a-z§])|\bissue \d`,
)
/** Paths that stand for what an operator writes, not for files of the repository. */
const PLACEHOLDERS = new Set([
  'plugins/config/35-policy.yaml',
  'plugins/config/37-content.yaml',
  'plugins/config/NN-name.yaml',
])

const MAX_COLUMNS = 110

const tracked = execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' })
  .trim()
  .split('\n')
  .filter((file) => existsSync(join(ROOT, file)))
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
const pages = tracked.filter((file) => file.endsWith('.md'))
const sources = tracked.filter((file) => /\.(?:ts|yaml|sh)$|^Makefile$|^\.ci\/run$/.test(file))

/** The anchors of a page: those that are set by hand, and those that its headings make. */
function anchorsOf(page: string): ReadonlySet<string> {
  const text = read(page)
  const set = [...text.matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id)
  const headings = [...text.matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) =>
    heading
      .replaceAll(/[`*[\]()]/g, '')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .trim()
      .replaceAll(' ', '-'),
  )
  return new Set([...set, ...headings])
}

const anchors = new Map(pages.map((page) => [page, anchorsOf(page)]))

function checkLink(t: { fail: (message: string) => void }, from: string, page: string, anchor = ''): void {
  if (!existsSync(join(ROOT, page))) t.fail(`${from} refers to ${page}, which is not there`)
  else if (anchor !== '' && anchors.get(page)?.has(anchor) === false)
    t.fail(`${from} refers to ${page}#${anchor}, which has no such anchor`)
}

const blankLines = (text: string): string => text.replaceAll(/[^\n]+/g, '')

/** The lines of a page that are longer than a page is wide, and could be shorter. */
const tooLong = (page: string): readonly string[] =>
  read(page)
    // A value of JSON cannot be broken.
    .replaceAll(/^```json\n.*?^```$/gms, blankLines)
    // What a command printed stands as it was printed.
    .replaceAll(/^<!-- figures: begin -->$.*?^<!-- figures: end -->$/gms, blankLines)
    .split('\n')
    .flatMap((line, index) =>
      line.length > MAX_COLUMNS && /\S\s+\S/.test(line.replace(/^[\s>|*-]+/, ''))
        ? [`${page}:${index + 1} has ${line.length} columns`]
        : [],
    )

await t.test('lines of the pages wrap at 110', async (t) => {
  for (const page of pages) t.same(tooLong(page), [], page)
})

await t.test('every page and anchor that sources and tests refer to is there', async (t) => {
  let links = 0
  for (const file of sources) {
    for (const [, page = '', anchor] of read(file).matchAll(/\b(docs\/[\w./-]+\.md)(?:#([\w-]+))?/g)) {
      checkLink(t, file, page, anchor)
      links += 1
    }
  }
  t.ok(links > 100, `${links} references were looked up`)
})

await t.test('every link between the pages opens', async (t) => {
  for (const page of pages) {
    for (const [, target = ''] of read(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      const [path = '', anchor] = target.split('#')
      checkLink(t, page, path === '' ? page : normalize(join(dirname(page), path)), anchor)
    }
  }
  t.pass(`${pages.length} pages were read`)
})

await t.test('every file that a page names is there', async (t) => {
  const named = /`((?:proxy|plugins|db|certs|scripts|test|docs|deploy)\/[\w./-]+\.(?:ts|md|yaml|json))`/g
  // Old entries of the changelog name files as they were.
  for (const page of pages.filter((page) => page !== 'CHANGELOG.md')) {
    for (const [, path = ''] of read(page).matchAll(named)) {
      if (!PLACEHOLDERS.has(path)) checkLink(t, page, path)
    }
  }
  t.pass(`${pages.length} pages were read`)
})

await t.test(
  'an id of a threat, check or fault in the name of a test has its line in docs/threats.md',
  async (t) => {
    const known = anchors.get('docs/threats.md')
    for (const file of sources.filter((file) => file.endsWith('.test.ts'))) {
      for (const [, id = ''] of read(file).matchAll(
        /['`](T\d{1,2}|[DFMB]-\d{2}|[ABDE]\d|H\d{1,2}[a-f]?|threat \d+)\b/g,
      )) {
        if (!known?.has(id.toLowerCase().replace(' ', '-'))) t.fail(`${file} names ${id}`)
      }
    }
    t.ok(known?.has('t5'), 'the page was read')
  },
)

await t.test('no source cites a page that is not in the repository', async (t) => {
  for (const file of [...sources, ...pages]) {
    if (file === 'test/docs.test.ts') continue
    const [cited] = PAGES_OF_OTHERS.exec(read(file)) ?? []
    if (cited !== undefined) t.fail(`${file} cites ${cited}`)
  }
  t.pass(`${sources.length} sources were read`)
})
