import { spawn, spawnSync } from 'node:child_process'

interface Run {
  readonly status: number | null
  readonly text: string
}

/** Why a test that needs this program is skipped, or false. */
export function without(program: string): string | false {
  // openssl has `version` where everybody else has `--version`.
  const found = ['version', '--version'].some((word) => spawnSync(program, [word]).status === 0)
  return found ? false : `${program} is not installed`
}

/** Runs openssl in a directory; `text` is everything it printed. Blocks. */
export function openssl(directory: string, args: readonly string[]): Run {
  const { status, stdout, stderr } = spawnSync('openssl', args, {
    cwd: directory,
    encoding: 'utf8',
    input: '',
  })
  return { status, text: stdout + stderr }
}

/** Runs a program without keeping a server in this process from answering it. */
export function run(program: string, directory: string, args: readonly string[]): Promise<Run> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] })
    let text = ''
    child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()))
    child.on('error', reject)
    child.on('close', (status) => resolve({ status, text }))
  })
}
