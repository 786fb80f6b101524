import { realpath } from 'node:fs/promises'
import { sep } from 'node:path'
import type { Environment } from '../../../plugins/operator-files/expand.ts'
import { OWNER_AND_GROUP, readSecretFile } from '../../../plugins/operator-files/secret-file.ts'

/**
 * Reads the secret that a resource refers to: `env:NAME` or `file:/path` (WIRE.md §2). Throws an Error with one sentence
 * where there is none, where a file is open to everybody, or where it is one of the gateway's own: who may register
 * resources must not be able to have the CA's keys sent somewhere.
 */
export const upstreamSecret =
  (env: Environment, dataDir: string) =>
  async (reference: string): Promise<string> => {
    const [, source, name = ''] = /^(env|file):(.+)$/s.exec(reference) ?? []
    if (source === 'file') return readSecretFile(await outside(name, dataDir), OWNER_AND_GROUP)
    const given = Object.hasOwn(env, name) && !name.startsWith('MCP_PROXY_')
    const value = source === 'env' && given ? env[name] : undefined
    if (value) return value
    throw new Error(`${reference} names no secret: set it where the gateway runs`)
  }

// Links followed: it is the file behind them that would be sent.
async function outside(path: string, dataDir: string): Promise<string> {
  const [file, own] = await Promise.all([realpath(path), realpath(dataDir)])
  const pseudo = ['/proc', '/sys', '/dev'].some((root) => file.startsWith(`${root}/`))
  if (!pseudo && !file.startsWith(own + sep)) return file
  throw new Error(`${path} is not a file for a secret of an MCP server`)
}
