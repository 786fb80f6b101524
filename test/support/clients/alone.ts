import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { shellExports } from '../../../scripts/verbs/env.ts'
import { scratch, writeFiles } from '../gateway.ts'
import { type Ran, run } from './files.ts'
import type { Through } from './through.ts'

/** A program that this repository does not depend on. */
export interface Installed {
  /** Its entry; empty where it is not installed. */
  readonly entry: string
  /** For tap: why the test is skipped, or false. */
  readonly skip: string | false
}

// Several hundred megabytes each, which nobody should have to download who does not want to test them: the
// versions that the tests were written with. One command for all, since npm takes away what an earlier one
// had brought without saving it. The older Codex sends a header whose name has an underscore.
const VERSIONS = {
  '@anthropic-ai/claude-code': '2.1.332',
  '@openai/codex': '0.171.0',
  'codex-0.121': 'npm:@openai/codex@0.121.0',
}
const INSTALL = ['npm i --no-save', ...Object.entries(VERSIONS).map((pair) => pair.join('@'))].join(' ')

/** Looks for a program among the installed packages. `entry`: its path there. */
export function installed(name: keyof typeof VERSIONS, entry: string): Installed {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${name}/package.json`)
    return { entry: join(dirname(manifest), entry), skip: false }
  } catch {
    return { entry: '', skip: `not installed here: ${INSTALL}` }
  }
}

/** What `sallyport env` prints for an agent. `direct`: the lines that use no sidecar are those in force. */
export function linesOf({ gateway, sidecar, directory }: Through, direct = false): string {
  const port = Number(new URL(sidecar).port)
  return shellExports({ port, identity: direct ? { directory, url: gateway.url } : null, direct })
}

/** The lines of one section, without its title. */
export function sectionOf(lines: string, title: string): string {
  const section = lines.split('\n\n').find((text) => text.startsWith(`# ${title}`)) ?? ''
  return section.slice(section.indexOf('\n') + 1)
}

/** A home directory of its own, and programs that run there as a stranger's do. */
export interface Home {
  /** Writes a file: its folder in the home directory, its name, its content. */
  readonly put: (folder: string, name: string, text: string) => Promise<void>
  /** Runs a Node program there. `env`: `NAME=value`, beside PATH and what the sourced lines say. */
  readonly run: (entry: string, args: readonly string[], env?: readonly string[]) => Promise<Ran>
}

/** `lines`: what the shell sources before each program. */
export async function homeOf(t: Test, lines: string): Promise<Home> {
  const home = await scratch(t)
  const put = (folder: string, name: string, text: string): Promise<void> =>
    writeFiles(join(home, folder), { [name]: text }, '')
  await put('', 'env.sh', lines)
  // Nothing else of this machine's environment: no key, no proxy, no setting of whoever runs the tests.
  const fixed = ['-i', `PATH=${process.env.PATH}`, `HOME=${home}`]
  const shell = ['sh', '-c', 'cd "$HOME" && . ./env.sh && exec "$@"', 'sh', process.execPath]
  return { put, run: (entry, args, env = []) => run('env', [...fixed, ...env, ...shell, entry, ...args]) }
}
