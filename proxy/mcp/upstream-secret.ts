import type { Environment } from '../../plugins/expand.ts'
import { OWNER_AND_GROUP, readSecretFile } from '../../plugins/secret-file.ts'

/**
 * Reads the secret that a resource refers to: `env:NAME` or `file:/path` (WIRE.md §2). Throws an Error with one sentence
 * where there is none, or where a file is open to everybody.
 */
export const upstreamSecret =
  (env: Environment) =>
  async (reference: string): Promise<string> => {
    const [, source, name = ''] = /^(env|file):(.+)$/s.exec(reference) ?? []
    if (source === 'file') return readSecretFile(name, OWNER_AND_GROUP)
    const value = source === 'env' ? env[name] : undefined
    if (value) return value
    throw new Error(`${reference} names no secret: set it where the gateway runs`)
  }
