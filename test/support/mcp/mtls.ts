import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Identity, scratch } from '../gateway.ts'
import type { SuiteOptions } from './suite.ts'

/** What makes the suite call as `who`: options of `runSuite`. The files go with the test. */
export async function asClient(
  t: Test,
  ca: string,
  who: Identity,
): Promise<Required<Pick<SuiteOptions, 'env' | 'preload'>>> {
  const directory = await scratch(t)
  const files = { SUITE_CA: ca, SUITE_CERT: who.cert, SUITE_KEY: who.key }
  const env: Record<string, string> = {}
  for (const [name, pem] of Object.entries(files)) {
    const path = join(directory, name)
    await writeFile(path, pem, { mode: 0o600 })
    env[name] = path
  }
  return { env, preload: join(import.meta.dirname, 'mtls-preload.ts') }
}
