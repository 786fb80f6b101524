import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { VERSION } from '../../proxy/boot/version.ts'
import { notesOf, releaseCandidate, tagCommit } from '../../scripts/release.ts'
import { without } from '../support/certs/openssl.ts'

const CHANGELOG = `# Changelog

## [Unreleased]

### Added

- what is to come

## [1.2.0] - 2026-01-02

### Fixed

- a hole

## [1.1.0] - unreleased

- what was forgotten

## [1.0.0] - 2025-12-31
`
const PACKAGE = {
  name: 'scratch',
  version: '1.2.0',
  type: 'module',
  exports: './dist/index.js',
  files: ['dist', '!dist/release'],
  scripts: {
    lint: 'echo linted',
    typecheck: 'echo typechecked',
    test: 'echo tested',
    build: "node -e \"fs.mkdirSync('dist');fs.writeFileSync('dist/index.js','export {}')\"",
  },
}
const skip = without('git') || without('npm')

/** A committed work tree in a directory of its test. */
function scratch(t: Test, manifest: object = PACKAGE): string {
  const root = t.testdir({
    'package.json': JSON.stringify(manifest),
    'CHANGELOG.md': CHANGELOG,
    '.gitignore': 'dist\n',
  })
  git(root, 'init', '--quiet')
  git(root, 'config', 'user.name', 'A Tester')
  git(root, 'config', 'user.email', 'tester@example.com')
  git(root, 'add', '.')
  git(root, 'commit', '--quiet', '--no-verify', '-m', 'scratch')
  return root
}

const git = (root: string, ...args: readonly string[]): string =>
  execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim()

const releaseIn = (root: string, ...args: readonly string[]) =>
  spawnSync(process.execPath, [join(import.meta.dirname, '../../scripts/release.ts'), ...args], {
    cwd: root,
    encoding: 'utf8',
  })

t.test("the notes are the version's section of the changelog, and nothing beside it", async (t) => {
  t.equal(notesOf(CHANGELOG, '1.2.0'), '### Fixed\n\n- a hole\n')
  t.equal(notesOf(CHANGELOG, '1.0.0'), '\n', 'also the last one, which says nothing')
  t.throws(() => notesOf(CHANGELOG, '1.1.0'), {
    message: 'CHANGELOG.md does not say when 1.1.0 is released: make its heading ## [1.1.0] - YYYY-MM-DD',
  })
  t.throws(() => notesOf(CHANGELOG, '1.3.0'), {
    message: 'CHANGELOG.md has no section for 1.3.0: write one under ## [1.3.0] - YYYY-MM-DD',
  })
  t.throws(
    () => notesOf(CHANGELOG, '1.2'),
    /no section for 1\.2:/,
    'the beginning of a version is another version',
  )
})

t.test('rows, image, chart, compose, package, documents, changelog and tag are of one version', async (t) => {
  const read = (file: string) => readFileSync(join(import.meta.dirname, '../..', file), 'utf8')
  const { version } = JSON.parse(read('package.json'))
  t.equal(VERSION, version, 'which stands in every row')
  const lock = JSON.parse(read('package-lock.json'))
  const places: Record<string, readonly (string | undefined)[]> = {
    'package-lock.json': [lock.version, lock.packages[''].version],
    'docs/openapi.json': [JSON.parse(read('docs/openapi.json')).info.version],
    Dockerfile: [/^ARG VERSION=(.*)$/m.exec(read('Dockerfile'))?.[1]],
    'deploy/helm/sallyport/Chart.yaml': [
      /^version: (.*)$/m.exec(read('deploy/helm/sallyport/Chart.yaml'))?.[1],
      /^appVersion: (.*)$/m.exec(read('deploy/helm/sallyport/Chart.yaml'))?.[1],
    ],
    'deploy/compose.yaml': Array.from(
      read('deploy/compose.yaml').matchAll(/\$\{SALLYPORT_IMAGE:-sallyport:([^}]*)\}/g),
      ([, tag]) => tag,
    ),
    'docs/deploying.md': Array.from(
      read('docs/deploying.md').matchAll(/(?: sallyport:|--branch v)(\S+)/g),
      ([, named]) => named,
    ),
  }
  for (const [file, named] of Object.entries(places)) {
    t.ok(named.length > 0, file)
    for (const one of named) t.equal(one, version, file)
  }
  t.match(notesOf(read('CHANGELOG.md'), version), /^### /m, 'with a date, and something to say')
  t.match(read('CHANGELOG.md'), /^## \[Unreleased\]\n/m, 'and a place for what comes next')
})

t.test('a tree that is not committed, and a version that exists, are refused', { skip }, async (t) => {
  const root = scratch(t)
  const candidate = releaseCandidate(root)
  t.match(candidate, { version: '1.2.0', tag: 'v1.2.0', commit: git(root, 'rev-parse', 'HEAD') })

  writeFileSync(join(root, 'new.ts'), '')
  t.throws(() => releaseCandidate(root), {
    message: 'the tree has changes that are not committed: commit or revert them',
  })
  t.throws(() => tagCommit(root, candidate), {
    message: 'the tree changed while it was checked: nothing was tagged',
  })
  git(root, 'add', '.')
  git(root, 'commit', '--quiet', '--no-verify', '-m', 'another commit')
  t.throws(() => tagCommit(root, candidate), {
    message: 'the tree changed while it was checked: nothing was tagged',
  })
  t.equal(git(root, 'tag', '--list'), '')

  tagCommit(root, releaseCandidate(root))
  t.throws(() => releaseCandidate(root), {
    message: 'the tag v1.2.0 exists already: raise the version in package.json',
  })
})

t.test('a release packs what it checked and tags that commit with its notes', { skip }, async (t) => {
  const root = scratch(t)
  const dry = releaseIn(root, '--dry')
  t.match(
    dry,
    { status: 0, stdout: /linted\n.*typechecked\n.*tested\n.*nothing was tagged/s },
    'it checks all',
  )
  t.equal(git(root, 'tag', '--list'), '')
  t.equal(readFileSync(join(root, 'dist/release/notes-1.2.0.md'), 'utf8'), '### Fixed\n\n- a hole\n')
  t.ok(existsSync(join(root, 'dist/release/scratch-1.2.0.tgz')))
  t.match(readFileSync(join(root, 'dist/sbom.cdx.json'), 'utf8'), '"bomFormat": "CycloneDX"')

  t.match(releaseIn(root), { status: 0, stdout: /git push origin v1\.2\.0\n/ }, 'it says what is left')
  t.equal(git(root, 'cat-file', '-t', 'v1.2.0'), 'tag', 'an annotated one')
  t.equal(git(root, 'rev-parse', 'v1.2.0^{commit}'), git(root, 'rev-parse', 'HEAD'))
  t.equal(git(root, 'tag', '--list', '--format=%(contents)'), '1.2.0\n\n### Fixed\n\n- a hole')
  t.equal(git(root, 'status', '--porcelain'), '')
})

t.test(
  'a check that fails and an export that is not packed end it with one sentence',
  { skip },
  async (t) => {
    const failing = releaseIn(scratch(t, { ...PACKAGE, scripts: { lint: 'exit 3' } }))
    t.match(failing, { status: 1, stderr: /^sallyport: npm run lint failed: nothing was tagged$/m })
    const missing = releaseIn(scratch(t, { ...PACKAGE, exports: './dist/gone.js' }))
    t.match(missing, { status: 1, stderr: /^sallyport: publint: .*gone\.js.*does not exist/m })
  },
)
