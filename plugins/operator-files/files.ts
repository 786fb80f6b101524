import { createHash, hash } from 'node:crypto'
import { constants, open, readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { ZodType } from 'zod'
import {
  ConfigError,
  type ConfigProblem,
  FILE_START,
  type FileFault,
  type FilePosition,
} from './config-error.ts'
import type { EnvironmentVariables } from './expand.ts'
import { explainIssue, shownValue } from './explain-issue.ts'
import { nearestName } from './nearest-name.ts'
import { errorCode, isWorldWritable } from './secret-file.ts'
import { type OperatorYaml, readOperatorYaml, type YamlPath } from './yaml.ts'

export interface OperatorFile {
  /** A built-in plugin's name, or the path of the operator's own module, as written. */
  readonly plugin: string
  /** The name in the directory, e.g. `10-pin.yaml`. */
  readonly file: string
  /** The rest as the plugin's schema read it; for an operator's own module, the rest as it stands. */
  readonly options: Readonly<Record<string, unknown>>
  /** `shadow: true` of a check: it only watches. */
  readonly shadow: boolean
  /** Hex SHA-256 of its text as the operator wrote it, but for the line that says `shadow`. */
  readonly digest: string
  readonly position: FilePosition
  readonly positionOf: (path: YamlPath) => FilePosition
  readonly has: (path: YamlPath) => boolean
  readonly written: (path: YamlPath) => string | undefined
}

export interface OperatorFiles {
  /** Sorted by file name, the order in which a call meets the checks. */
  readonly files: readonly OperatorFile[]
  /** Hex SHA-256 over the names and raw bytes of the files: never over what references expand to. */
  readonly digest: string
}

interface OperatorFilesSource {
  readonly directory: string
  /** The options of each built-in plugin, by its name, without the `plugin` key. */
  readonly schemas: ReadonlyMap<string, ZodType>
  /** The plugins that are checks, as every module of an operator is: they may be shadows. */
  readonly checks: ReadonlySet<string>
  readonly env: EnvironmentVariables
}

const NAME = /^\d{2}-[a-z0-9][a-z0-9-]*\.ya?ml$/
const MAX_FILE_BYTES = 1_048_576

/**
 * Reads every `NN-name.yaml` of a directory (docs/protocol.md#operator-files). Throws one {@link ConfigError}
 * with everything that is wrong. A .yaml or .yml with another name is wrong too. A directory or file that
 * everybody may write to is refused (docs/threats.md#threat-34). Does NOT check the order and does NOT load
 * an operator's own module.
 */
export async function readOperatorFiles(source: OperatorFilesSource): Promise<OperatorFiles> {
  const { directory } = source
  const problems: ConfigProblem[] = []
  const files: OperatorFile[] = []
  const digest = createHash('sha256')
  for (const file of await namesIn(directory)) {
    const faults: FileFault[] = []
    const bytes = await readBytes(directory, file, faults)
    if (bytes) {
      digest.update(`${file}\0${bytes.length}\0`).update(bytes)
      const read = readOne(file, bytes, source, faults)
      if (read) files.push(read)
    }
    problems.push(...faults.map((fault) => ({ file, ...fault })))
  }
  if (problems.length > 0) throw new ConfigError(directory, problems)
  return { files, digest: digest.digest('hex') }
}

/** True for a plugin that is the operator's own module: a path, not a name. */
export const isModulePath = (plugin: string): boolean => plugin.startsWith('./') || plugin.startsWith('/')

async function namesIn(directory: string): Promise<string[]> {
  const refuse = (message: string) => new ConfigError(directory, [{ file: '', ...FILE_START, message }])
  try {
    const { mode } = await stat(directory)
    if (isWorldWritable(mode)) throw refuse('everybody may write to this directory: chmod o-w it')
    const names = await readdir(directory)
    // Sorted by code unit, as every shell in the C locale lists them: the order must not depend on the
    // machine.
    return names.filter((name) => /^[^.].*\.ya?ml$/i.test(name)).sort()
  } catch (error) {
    if (error instanceof ConfigError) throw error
    throw refuse(`the directory of plugin files cannot be read (${errorCode(error)})`)
  }
}

async function readBytes(directory: string, file: string, faults: FileFault[]): Promise<Buffer | null> {
  const refuse = (message: string): null => {
    faults.push({ ...FILE_START, message })
    return null
  }
  if (!NAME.test(file)) {
    return refuse('is not named NN-name.yaml, such as 35-my-check.yaml: rename it, or end it in .disabled')
  }
  try {
    // Without O_NONBLOCK a named pipe that nobody writes to would hold the boot for ever.
    await using handle = await open(join(directory, file), constants.O_RDONLY | constants.O_NONBLOCK)
    const stats = await handle.stat()
    if (!stats.isFile()) return refuse('is not a regular file')
    if (isWorldWritable(stats.mode)) return refuse('everybody may write to this file: chmod o-w it')
    if (stats.size > MAX_FILE_BYTES) return refuse('is larger than 1 MiB')
    return await handle.readFile()
  } catch (error) {
    return refuse(`cannot be read (${errorCode(error)})`)
  }
}

function readOne(
  file: string,
  bytes: Buffer,
  { schemas, checks, env }: OperatorFilesSource,
  faults: FileFault[],
): OperatorFile | null {
  const text = decode(bytes, faults)
  const yaml = text === null ? null : readOperatorYaml(text, env, faults)
  if (!yaml) return null
  const { plugin, ...rest } = yaml.value
  const position = yaml.positionOf(['plugin'])
  const { written, positionOf, has } = yaml
  const digest = hash('sha256', (text ?? '').replace(/^shadow:.*\n?/m, ''))
  if (typeof plugin !== 'string') {
    faults.push({ ...position, message: 'must begin with plugin: NAME, such as plugin: pin' })
    return null
  }
  const isModule = isModulePath(plugin)
  const { shadow, options } =
    isModule || checks.has(plugin) ? shadowOf(rest, yaml, faults) : { shadow: false, options: rest }
  if (isModule) return { plugin, file, options, shadow, digest, position, positionOf, has, written }
  const schema = schemas.get(plugin)
  if (!schema) {
    faults.push({ ...position, message: unknownPlugin(plugin, schemas) })
    return null
  }
  const checked = validate(options, { plugin, schema, yaml }, faults)
  return checked && { plugin, file, options: checked, shadow, digest, position, positionOf, has, written }
}

/** Takes our own options out of a check's file: they are not the check's. */
function shadowOf(
  { shadow = false, ...options }: Readonly<Record<string, unknown>>,
  yaml: OperatorYaml,
  faults: FileFault[],
): Pick<OperatorFile, 'shadow' | 'options'> {
  if (typeof shadow === 'boolean') return { shadow, options }
  faults.push({ ...yaml.positionOf(['shadow']), message: 'shadow must be true or false' })
  return { shadow: true, options }
}

function decode(bytes: Buffer, faults: FileFault[]): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    faults.push({ ...FILE_START, message: 'is not UTF-8 text' })
    return null
  }
}

function unknownPlugin(plugin: string, schemas: ReadonlyMap<string, ZodType>): string {
  const meant = nearestName(plugin, schemas.keys())
  const module = 'a module of your own is named by its path, such as ./my-check.ts'
  return `unknown plugin ${shownValue(plugin)}: did you mean ${meant}? (${module})`
}

function validate(
  options: Readonly<Record<string, unknown>>,
  checked: { plugin: string; schema: ZodType; yaml: OperatorYaml },
  faults: FileFault[],
): Record<string, unknown> | null {
  const result = checked.schema.safeParse(options)
  if (result.success) {
    // Every schema of options is an object's.
    return result.data as Record<string, unknown>
  }
  const told = new Set(faults.map(({ line, column }) => `${line}:${column}`))
  const found = result.error.issues.flatMap((issue) => explainIssue(issue, checked))
  // A reference that could not be expanded is reported already.
  faults.push(...found.filter(({ line, column }) => !told.has(`${line}:${column}`)))
  return null
}
