import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')
const PARTS = ['proxy', 'plugins', 'db', 'certs', 'scripts', 'package.json']

/** Why the sources of a commit are not here; false where they are. A clone may have no history. */
export function withoutCommit(commit: string): string | false {
  const { status } = spawnSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: ROOT })
  return status === 0 ? false : 'the history of this clone does not reach so far back'
}

/** Puts the sources of a commit into an empty directory, with the packages of today. Returns the directory. */
export function earlierVersion(commit: string, into: string): string {
  mkdirSync(into)
  const archive = execFileSync('git', ['archive', '--format=tar', commit, ...PARTS], {
    cwd: ROOT,
    maxBuffer: 1 << 28,
  })
  execFileSync('tar', ['-x'], { cwd: into, input: archive })
  symlinkSync(join(ROOT, 'node_modules'), join(into, 'node_modules'))
  return into
}
