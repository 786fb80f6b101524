import { realpath } from 'node:fs/promises'
import { normalize, sep } from 'node:path'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'
import { OWNER_AND_GROUP, readSecretFile } from '../../plugins/operator-files/secret-file.ts'

/** The rule for references to the secrets of MCP servers, as the end of a sentence about one. */
export const SECRET_REFERENCE_RULE =
  'must be env:MCP_SECRET_…, or file: and the absolute path of a file below MCP_PROXY_SECRETS_DIR ' +
  '(by default mcp-secrets in the data directory), and never the secret itself'

/** A reference to something else than a secret of an MCP server. The message does not repeat it. */
export class SecretReferenceError extends Error {
  override readonly name = 'SecretReferenceError'

  constructor(options?: ErrorOptions) {
    super(SECRET_REFERENCE_RULE, options)
  }
}

const VARIABLE = /^env:(MCP_SECRET_[A-Za-z0-9_]{1,117})$/
const FILE = /^file:(\/[^\p{C}]{1,1023})$/u

/** Returns whether the text has the form of a reference. Does NOT look at the place of its file. */
export const isSecretReference = (text: string): boolean => VARIABLE.test(text) || fileOf(text) !== null

/** The path of a `file:` reference, or null. A path with `..` or an empty segment is none. */
function fileOf(reference: string): string | null {
  const path = FILE.exec(reference)?.[1]
  return path !== undefined && normalize(path) === path && !path.endsWith(sep) ? path : null
}

/**
 * Throws a {@link SecretReferenceError} if the reference leads out of `directory`, by its path or by a link.
 */
export async function checkSecretReference(reference: string, directory: string): Promise<void> {
  if (!isSecretReference(reference)) throw new SecretReferenceError()
  const path = fileOf(reference)
  if (path === null) return
  const root = await realpath(directory).catch(() => directory)
  const file = await realpath(path).catch(() => path)
  // If one of the two is not there, the directory's own name is as good as the place that it leads to.
  if (!isBelow(file, root) && !(file === path && isBelow(path, directory))) throw new SecretReferenceError()
}

/**
 * Makes the function that reads the secret of a reference: `env:MCP_SECRET_…`, or `file:` below `directory`
 * (docs/protocol.md#secret-references). It throws a {@link SecretReferenceError} for every other reference,
 * and an Error with one sentence if there is no secret or everybody may read it.
 */
export const secretReader =
  (env: EnvironmentVariables, directory: string) =>
  async (reference: string): Promise<string> => {
    if (!isSecretReference(reference)) throw new SecretReferenceError()
    const path = fileOf(reference)
    if (path !== null) return readSecretFile(await requireInside(path, directory), OWNER_AND_GROUP)
    const name = VARIABLE.exec(reference)?.[1] ?? ''
    const value = Object.hasOwn(env, name) ? env[name] : undefined
    if (value) return value
    throw new Error(`${reference} names no secret: set it where the gateway runs`)
  }

// Follows links: the file behind them would be sent.
async function requireInside(path: string, directory: string): Promise<string> {
  const [file, root] = await Promise.all([realpath(path), realpath(directory)])
  if (isBelow(file, root)) return file
  throw new SecretReferenceError()
}

/** Returns whether a path lies below a directory. Neither holds a link or a `..`. */
export const isBelow = (path: string, directory: string): boolean =>
  path.startsWith(directory.endsWith(sep) ? directory : directory + sep)
