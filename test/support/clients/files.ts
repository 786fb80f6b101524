import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'
import type { Identity, TestGateway } from '../gateway.ts'

/** An identity as files, as `make agent` leaves it, in the test's own directory. */
export interface IdentityFiles {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

/** Writes an identity to files. Call it once a test: the directory is made anew each time. */
export function identityFiles(t: Test, { ca }: TestGateway, { cert, key }: Identity): IdentityFiles {
  const directory = t.testdir({ 'org-ca.crt': ca, 'agent.crt': cert, 'agent.key': key })
  return {
    ca: join(directory, 'org-ca.crt'),
    cert: join(directory, 'agent.crt'),
    key: join(directory, 'agent.key'),
  }
}

/** Writes one more file beside an identity and gives its path. */
export function fileBeside(
  { ca }: Pick<IdentityFiles, 'ca'>,
  name: string,
  content: string | Buffer,
): string {
  const path = join(ca, '..', name)
  writeFileSync(path, content)
  return path
}

export interface Ran {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

/** Runs another program to its end. `onOutput` sees each piece of its standard output as it comes. */
export async function run(
  command: string,
  args: readonly string[],
  onOutput?: (text: string) => void,
): Promise<Ran> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  if (onOutput) child.stdout.on('data', (chunk: Buffer) => onOutput(chunk.toString()))
  const [out, err] = await Promise.all([buffer(child.stdout), buffer(child.stderr), once(child, 'close')])
  return { code: child.exitCode, out: out.toString(), err: err.toString() }
}
