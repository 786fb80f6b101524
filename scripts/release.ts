import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { isObject } from '../db/support/json.ts'
import { hasClient, layClientPackage } from './client-package.ts'
import { verbOf } from './command.ts'
import { SBOM, writeSbom } from './sbom.ts'

type SignatureVerdict =
  | { readonly checked: true; readonly invalid: readonly string[]; readonly missing: readonly string[] }
  /** The registry publishes no keys, or could not be asked: npm's sentence about it. */
  | { readonly checked: false; readonly why: string }

/**
 * Reads `npm audit signatures --json`. Anything that is no verdict counts as not checked: the lock file has
 * digests.
 */
export function signatureVerdict(text: string): SignatureVerdict {
  const found = parseObjectOrEmpty(text)
  if (Array.isArray(found.invalid) && Array.isArray(found.missing)) {
    return { checked: true, invalid: found.invalid.map(nameOf), missing: found.missing.map(nameOf) }
  }
  const why = isObject(found.error) && typeof found.error.summary === 'string' ? found.error.summary : ''
  return { checked: false, why: why || 'npm gave no verdict' }
}

function parseObjectOrEmpty(text: string) {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

const nameOf = (entry: unknown): string =>
  isObject(entry) ? `${String(entry.name)}@${String(entry.version)}` : String(entry)

const verb = verbOf({
  name: 'make release',
  usage: ['[DRY=1]'],
  about: `Checks the committed tree, packs it into dist/release, cuts the version's notes from CHANGELOG.md and tags the commit.
Publishes nothing.`,
  options: { dry: { type: 'boolean', default: false, description: 'everything but the tag' } },
  run: async ({ dry }) => {
    await release(process.cwd(), dry)
    return 0
  },
})

const OUTPUT = 'dist/release'
const CLIENT = `${OUTPUT}/client`

export interface ReleaseCandidate {
  readonly name: string
  readonly version: string
  readonly tag: string
  /** The commit's hash, hex. */
  readonly commit: string
  /** The version's section of the changelog, without its heading. Markdown. */
  readonly notes: string
}

export function releaseCandidate(root: string): ReleaseCandidate {
  const manifest: Pick<ReleaseCandidate, 'name' | 'version'> = JSON.parse(
    readFileSync(join(root, 'package.json'), 'utf8'),
  )
  const { name, version } = manifest
  const tag = `v${version}`
  if (git(root, 'status', '--porcelain') !== '') {
    throw new Error('the tree has changes that are not committed: commit or revert them')
  }
  if (git(root, 'tag', '--list', tag) !== '') {
    throw new Error(`the tag ${tag} exists already: raise the version in package.json`)
  }
  const notes = notesOf(readFileSync(join(root, 'CHANGELOG.md'), 'utf8'), version)
  return { name, version, tag, commit: git(root, 'rev-parse', 'HEAD'), notes }
}

/** Cuts a version's section from a changelog. Throws one sentence if it is missing or undated. */
export function notesOf(changelog: string, version: string): string {
  const title = `[${version}]`
  const section = changelog.split(/^## /m).find((text) => text.startsWith(title))
  if (!section) {
    throw new Error(`CHANGELOG.md has no section for ${version}: write one under ## ${title} - YYYY-MM-DD`)
  }
  const [heading = '', ...lines] = section.split('\n')
  if (!/^ - \d{4}-\d\d-\d\d\s*$/.test(heading.slice(title.length))) {
    throw new Error(
      `CHANGELOG.md does not say when ${version} is released: make its heading ## ${title} - YYYY-MM-DD`,
    )
  }
  return `${lines.join('\n').trim()}\n`
}

/** Tags the candidate's commit. Throws one sentence if the tree is no longer that commit. */
export function tagCommit(root: string, { tag, commit, version, notes }: ReleaseCandidate): void {
  if (git(root, 'status', '--porcelain') !== '' || git(root, 'rev-parse', 'HEAD') !== commit) {
    throw new Error('the tree changed while it was checked: nothing was tagged')
  }
  // Kept as it is: git would take the headings for comments of its own.
  git(root, 'tag', '--annotate', '--cleanup=verbatim', '-m', `${version}\n\n${notes}`, tag, commit)
}

function git(root: string, ...args: readonly string[]): string {
  const { status, stdout, stderr, error } = spawnSync('git', args, { cwd: root, encoding: 'utf8' })
  if (status !== 0) throw new Error(`git ${args[0]} failed: ${error?.message ?? stderr.trim()}`)
  return stdout.trim()
}

function run(root: string, program: string, ...args: readonly string[]): void {
  process.stdout.write(`\n== ${program} ${args.join(' ')}\n`)
  const { status } = spawnSync(program, args, { cwd: root, stdio: 'inherit' })
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed: nothing was tagged`)
}

/** Packs the package and its client with their bill of materials. Returns the tarballs' paths. */
async function packAll(root: string, { name, version }: ReleaseCandidate): Promise<readonly string[]> {
  // tsc leaves the files of an earlier build, and all of dist is packed.
  rmSync(join(root, 'dist'), { recursive: true, force: true })
  run(root, 'npm', 'run', 'build')
  writeSbom(root)
  mkdirSync(join(root, OUTPUT), { recursive: true })
  const whole = await pack(root, '.', `${name}-${version}.tgz`)
  const dist = join(root, 'dist')
  if (!hasClient(dist)) return [whole]
  layClientPackage(root, dist, join(root, CLIENT))
  return [whole, await pack(root, CLIENT, `${name}-client-${version}.tgz`)]
}

/** Packs a directory, and checks the imports of a user of the tarball. Returns its path. */
async function pack(root: string, directory: string, file: string): Promise<string> {
  run(root, 'npm', 'pack', `./${directory}`, '--pack-destination', OUTPUT)
  const path = join(OUTPUT, file)
  const { buffer } = Uint8Array.from(readFileSync(join(root, path)))
  const { messages, pkg } = await publint({ pack: { tarball: buffer }, level: 'warning' })
  const found = messages.map((message) => formatMessage(message, pkg ?? {}, { color: false }))
  if (found.length > 0) throw new Error(`publint: ${found.join('; ')}`)
  return path
}

function checkSignatures(root: string): void {
  const args = ['audit', 'signatures', '--json']
  process.stdout.write(`\n== npm ${args.join(' ')}\n`)
  const verdict = signatureVerdict(spawnSync('npm', args, { cwd: root, encoding: 'utf8' }).stdout ?? '')
  if (!verdict.checked) {
    process.stdout.write(`not checked: ${verdict.why}\n`)
    return
  }
  const { invalid, missing } = verdict
  if (invalid.length > 0) throw new Error(`wrongly signed: ${invalid.join(', ')}: nothing was tagged`)
  process.stdout.write(
    missing.length > 0 ? `without a signature: ${missing.join(', ')}\n` : 'all are signed\n',
  )
}

function nextSteps(
  { version, tag }: ReleaseCandidate,
  tarballs: readonly string[],
  notes: string,
  dry: boolean,
): string {
  const lines = dry
    ? [
        `nothing was tagged: without DRY=1 this commit becomes ${tag}`,
        `${[...tarballs, notes, SBOM].join(', ')}`,
      ]
    : [
        `this commit is ${tag}, here and nowhere else (git tag -d ${tag} takes it back); next, if it is to be public:`,
        `  git push origin ${tag}`,
        ...tarballs.map(
          (path) => `  npm publish ${path}      (npm refuses as long as package.json says "private": true)`,
        ),
        `  ${notes} is the text to announce ${version} with; ${SBOM} is what it is made of`,
      ]
  return lines.map((line) => `release: ${line}\n`).join('')
}

async function release(root: string, dry: boolean): Promise<void> {
  const candidate = releaseCandidate(root)
  checkSignatures(root)
  for (const script of ['lint', 'typecheck', 'test']) run(root, 'npm', 'run', script)
  const tarballs = await packAll(root, candidate)
  const notes = join(OUTPUT, `notes-${candidate.version}.md`)
  writeFileSync(join(root, notes), candidate.notes)
  if (!dry) tagCommit(root, candidate)
  process.stdout.write(`\n${nextSteps(candidate, tarballs, notes, dry)}`)
}

if (import.meta.main) process.exitCode = await verb.run(process.argv.slice(2))
