import { execFileSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../../..')

interface Locked {
  readonly dev?: boolean
}

/** Lists the folders that `npm ci --omit=dev` makes on this machine, from the lock file, as far as they are installed. */
export function productionModules(): readonly string[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    readonly packages: Readonly<Record<string, Locked>>
  }
  return Object.entries(packages)
    .filter(([path, { dev = false }]) => path !== '' && !dev && existsSync(join(ROOT, path)))
    .map(([path]) => path)
}

/** The files that pages load, and the table of prices: the compiler does not copy them. */
const UNCOMPILED = ['proxy/dashboard/frame/assets', 'plugins/prices/table.json']

/** Compiles the package into `dist`, as `make build` does. */
export function compileInto(dist: string): void {
  for (const config of ['tsconfig.build.json', 'tsconfig.types.json']) {
    // What a test runner puts into the environment of its children is none of the compiler's business.
    const args = ['-i', `PATH=${process.env.PATH}`, join(ROOT, 'node_modules/.bin/tsc')]
    execFileSync('env', [...args, '-p', config, '--outDir', dist], { cwd: ROOT })
  }
  for (const path of UNCOMPILED) cpSync(join(ROOT, path), join(dist, path), { recursive: true })
  const verifier = ['verifier', `VERIFIER=${join(dist, 'verify.mjs')}`]
  execFileSync('env', ['-i', `PATH=${process.env.PATH}`, 'make', '--silent', ...verifier], { cwd: ROOT })
}

/** Lays the production packages out below `root`, without those whose path `leave` names. */
export function layModules(root: string, leave: RegExp): void {
  const all = productionModules().filter((path) => !leave.test(path))
  for (const path of all) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    // A folder's own packages are in the list by themselves, those that are needed.
    const own = join(ROOT, path, 'node_modules')
    cpSync(join(ROOT, path), join(root, path), { recursive: true, filter: (from) => from !== own })
  }
}

/** Copies a program and the shared libraries that it and the native modules below `root` are linked with. */
export function layProgram(root: string, program: string, target: string): void {
  const natives = execFileSync('find', [root, '-name', '*.node'], { encoding: 'utf8' }).split('\n')
  const files = new Set<string>()
  for (const file of [program, ...natives.filter((path) => path !== '')]) {
    for (const [, path = ''] of libraries(file).matchAll(/(\/\S+) \(0x/g)) files.add(path)
  }
  for (const [from, to] of [[program, target], ...[...files].map((path) => [path, path] as const)] as const) {
    mkdirSync(dirname(join(root, to)), { recursive: true })
    copyFileSync(from, join(root, to))
  }
}

/** Another platform's module is not linked with anything here. */
function libraries(file: string): string {
  try {
    return execFileSync('ldd', [file], { encoding: 'utf8', stdio: 'pipe' })
  } catch {
    return ''
  }
}
