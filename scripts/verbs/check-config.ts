import { databaseMigrationState, openDatabase } from '../../db/engine.ts'
import { catalogueRow } from '../../plugins/catalogue.ts'
import { ConfigError } from '../../plugins/operator-files/config-error.ts'
import type { EnvironmentVariables } from '../../plugins/operator-files/expand.ts'
import type { OperatorFile } from '../../plugins/operator-files/files.ts'
import { evaluateExpectations } from '../../proxy/admin/conditions/expected.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import {
  CATALOGUE,
  type Configuration,
  expectedOf,
  loadConfiguration,
} from '../../proxy/wiring/configuration.ts'
import { pipelineSteps } from '../../proxy/wiring/steps.ts'
import { verbOf } from '../command.ts'
import { print, printNotice } from '../print.ts'

export const verb = verbOf({
  name: 'sallyport check-config',
  takes: '[DIR]',
  misuse: 'one directory at a time',
  make: 'make check-config',
  about: `Checks the operators' plugin files without starting the gateway: reads every NN-name.yaml in DIR
(default: MCP_PROXY_PLUGINS_DIR, or plugins/config), loads the modules they name, and checks their order.
Prints every step that an LLM and an MCP call must pass under them, by the names in the ledger.
Expectations are judged by the database of MCP_PROXY_DATABASE_URL, or the one in the data directory, if there is one.
References such as \${env:NAME} are expanded with the environment of this command.`,
  options: {},
  notes: `Exit code: 0 the files work; 1 they do not, each problem on a line file:line:column: message; 2 wrong usage.`,
  failing: { as: 'check-config', usage: 2, failed: 1 },
  run: async (_, [directory]) =>
    checkConfig(directory ?? (process.env.MCP_PROXY_PLUGINS_DIR || 'plugins/config'), process.env, {
      out: print,
      err: printNotice,
    }),
})

export interface LineOutput {
  readonly out: (...lines: readonly string[]) => void
  readonly err: (...lines: readonly string[]) => void
}

/** Resolves to the exit code; rejects only if this program itself is wrong. */
export async function checkConfig(
  directory: string,
  env: EnvironmentVariables,
  { out, err }: LineOutput,
): Promise<number> {
  try {
    const configuration = await loadConfiguration(directory, env)
    try {
      const broken = await brokenIn(configuration, env, out)
      err(...broken)
      if (broken.length > 0) return 1
      out(...(await report(configuration)), `${directory}: ok (digest ${configuration.digest})`)
      return 0
    } finally {
      await configuration.close()
    }
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    err(...error.lines)
    return 1
  }
}

/** The expectations that do not hold, each with its place: none without a database. */
async function brokenIn(
  configuration: Configuration,
  env: EnvironmentVariables,
  out: LineOutput['out'],
): Promise<readonly string[]> {
  const expected = expectedOf(configuration)
  if (expected.sentences.length === 0) return []
  const { databaseUrl } = readSettings(env, process.cwd())
  const { applied, pending } = await databaseMigrationState(databaseUrl)
  if (applied.length === 0 || pending.length > 0) {
    out(
      `${expected.sentences.length} expectations are not judged: the database is not there, or of an earlier version`,
    )
    return []
  }
  const database = await openDatabase(databaseUrl)
  try {
    const { file = '' } = configuration.files.find(({ plugin }) => plugin === 'expect') ?? {}
    const broken = await evaluateExpectations({ database, expected }, null)
    return broken.map(({ line, sentence }) => `${file}:${line}: does not hold: ${sentence}`)
  } finally {
    await database.close()
  }
}

async function report(configuration: Configuration): Promise<readonly string[]> {
  const { files } = configuration
  const width = Math.max(...files.map(({ file }) => file.length))
  const linesOf = (some: readonly OperatorFile[]) =>
    some.map(
      ({ file, plugin, shadow }) =>
        `  ${file.padEnd(width)}  ${plugin}${shadow ? ', which only watches' : ''}`,
    )
  const isService = ({ plugin }: OperatorFile) => catalogueRow(CATALOGUE, plugin)?.place === 'service'
  const steps = await pipelineSteps(configuration)
  const calls = Math.max(...steps.map(({ call }) => call.length))
  return [
    'What a call must pass, in this order:',
    ...steps.map(({ call, names }) => `  ${call.padEnd(calls)}  ${names.join(' → ')}`),
    'Files that tune it, or add a check between capability and audit, in the order of their names:',
    ...linesOf(files.filter((file) => !isService(file))),
    'Files that are settings of the work after it, and not steps:',
    ...linesOf(files.filter(isService)),
  ]
}
