import { cpSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigError } from '../../../plugins/operator-files/config-error.ts'
import { loadConfiguration } from '../../../proxy/wiring/configuration.ts'

/** The operator files that the package ships. */
export const SHIPPED = join(import.meta.dirname, '../../../plugins/config')

/** Copies the shipped files into a directory, to be changed. Returns that directory. */
export function copyShipped(directory: string): string {
  for (const name of readdirSync(SHIPPED).filter((file) => file.endsWith('.yaml'))) {
    cpSync(join(SHIPPED, name), join(directory, name))
  }
  return directory
}

/** Why a directory of operator files is refused: `file:line:column: message`. Throws where it is accepted. */
export async function problems(directory: string): Promise<string[]> {
  const error: unknown = await loadConfiguration(directory, {}).then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof ConfigError)) throw error ?? new Error('the files were accepted')
  return error.problems.map(({ file, line, column, message }) => `${file}:${line}:${column}: ${message}`)
}
