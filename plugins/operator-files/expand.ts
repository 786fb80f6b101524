import { isAbsolute } from 'node:path'
import { OWNER_AND_GROUP, readSecretFile } from './secret-file.ts'

/** Environment variables by name; `process.env` is one. */
export type EnvironmentVariables = Readonly<Record<string, string | undefined>>

// `$$`, a whole `${word:…}`, or the beginning of an `${env` or `${file` that never becomes one.
const REFERENCE = /\$\$|\$\{([A-Za-z]+):([^{}]*)\}|\$\{(?:env|file)\b[^}]*\}?/g
const VARIABLE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s

/**
 * Replaces `${env:NAME}`, `${env:NAME:-default}`, `${file:/path}` and `$$` in `text`
 * (docs/protocol.md#references). A replacement is not expanded again. Throws an Error with one sentence if a
 * variable without a default is unset, a file cannot be read or is open to everybody, or a reference is
 * misspelt.
 */
export function expandReferences(text: string, env: EnvironmentVariables): string {
  return text.replace(REFERENCE, (reference: string, source?: string, argument = '') => {
    if (reference === '$$') return '$'
    if (source === 'env') return variable(reference, argument, env)
    if (source === 'file') return file(argument)
    throw new Error(
      `${reference} is not understood: write \${env:NAME}, \${env:NAME:-default} or \${file:/path}`,
    )
  })
}

function variable(reference: string, argument: string, env: EnvironmentVariables): string {
  const [, name, fallback] = VARIABLE.exec(argument) ?? []
  if (name === undefined) throw new Error(`${reference} does not name an environment variable`)
  const value = env[name]
  if (fallback !== undefined) return value || fallback
  if (value === undefined) {
    throw new Error(
      `environment variable ${name} is not set: set it, or give a default with \${env:${name}:-default}`,
    )
  }
  return value
}

function file(path: string): string {
  if (!isAbsolute(path)) throw new Error(`\${file:${path}} must name an absolute path`)
  return readSecretFile(path, OWNER_AND_GROUP)
}
