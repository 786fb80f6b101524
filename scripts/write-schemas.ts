import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { z } from 'zod'
import { FORMER_PLUGIN_NAMES, FORMER_REASONS, REFUSAL_REASONS, Refusal } from '../plugins/refusal.ts'
import { readSettings } from '../proxy/boot/settings.ts'
import { CATALOGUE } from '../proxy/wiring/configuration.ts'
import { expectStatus } from './admin/call.ts'
import { withControl } from './admin/control.ts'

/** The directory of the published schemas; the first line of each file in `plugins/config` points here. */
export const SCHEMA_DIRECTORY = join(import.meta.dirname, '../docs/schema')

export const OPENAPI_FILE = join(import.meta.dirname, '../docs/openapi.json')

const MAX_COLUMNS = 110

export const REASONS_PAGE = join(import.meta.dirname, '../docs/reasons.md')

export function schemaFiles(): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(CATALOGUE).map(([plugin, { options, place }]) => [
      `${plugin}.schema.json`,
      `${JSON.stringify(schemaOf(plugin, options, place === 'check' ? SHADOW : {}), null, 2)}\n`,
    ]),
  )
}

/** Added to a check's own options in its file. */
const SHADOW = {
  shadow: {
    type: 'boolean',
    default: false,
    description:
      'True: the check only watches. Its verdicts are in the ledger and in metrics, and decide nothing.',
  },
}

function schemaOf(plugin: string, options: z.ZodType, ofPlace: object): object {
  const { $schema, properties = {}, required = [], ...rest } = z.toJSONSchema(options, { io: 'input' })
  return {
    $schema,
    title: `plugins/config: ${plugin}`,
    ...rest,
    properties: {
      plugin: { const: plugin, description: 'The plugin that this file configures.' },
      ...ofPlace,
      ...properties,
    },
    required: ['plugin', ...required],
  }
}

/** The text of {@link OPENAPI_FILE}: the answer of a gateway with the shipped files at `/openapi.json`. */
export async function openapiText(): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'sallyport-'))
  try {
    const settings = readSettings({ MCP_PROXY_DATA_DIR: join(root, 'data') }, join(import.meta.dirname, '..'))
    const described = await withControl(settings, async (call) =>
      expectStatus(await call('GET', '/openapi.json'), 200),
    )
    return `${JSON.stringify(described, null, 2)}\n`
  } finally {
    await rm(root, { recursive: true, force: true })
  }
}

export function reasonsPage(): string {
  // Object.keys knows texts only; the table's own type says which they are.
  const reasons = (Object.keys(REFUSAL_REASONS) as (keyof typeof REFUSAL_REASONS)[]).map(
    (reason) => new Refusal(reason),
  )
  return `# Reasons

Generated from \`plugins/refusal.ts\` by \`make schemas\`: do not edit.

${wrapped(`Every refusal gives its \`reason\` in the body, in the log line and, if the caller is known, in the ledger. The
meaning of a reason never changes; a \`message\` may say more than the sentence here. *Retry* means that the same request
may succeed later; every other refusal also tells SDKs \`x-should-retry: false\`. MCP and the token endpoint answer in
the form of their own protocols, with the same reasons.`)}

${reasons.map(entryOf).join('\n')}

## Former reasons

${wrapped(`Answers and rows of earlier versions have these. Each meaning has one word now, whichever endpoint refuses.`)}

${table(['Then', 'Now'], Object.entries(FORMER_REASONS).map(coded))}

## Former names of plugins

${wrapped(`The ledger says in \`refused_by\` which plugin refused. Rows of earlier versions keep the names that they were
written with.`)}

${table(['Then', 'Now'], Object.entries(FORMER_PLUGIN_NAMES).map(coded))}
`
}

const entryOf = ({ reason, status, type, final, message }: Refusal): string =>
  wrapped(`- ${code(reason)} (${status}, ${code(type)}${final ? '' : ', retry'}): ${message}`, '  ')

function wrapped(text: string, indent = ''): string {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/\s+/)) {
    if (line.trim() !== '' && line.length + 1 + word.length > MAX_COLUMNS) {
      lines.push(line)
      line = `${indent}${word}`
    } else line = line === '' ? word : `${line} ${word}`
  }
  return [...lines, line].join('\n')
}

const code = (text: string): string => `\`${text}\``
const coded = (pair: readonly string[]): string[] => pair.map(code)

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), `|${'---|'.repeat(head.length)}`, ...rows.map(line)].join('\n')
}

if (import.meta.main) {
  await mkdir(SCHEMA_DIRECTORY, { recursive: true })
  for (const [file, text] of schemaFiles()) await writeFile(join(SCHEMA_DIRECTORY, file), text)
  await writeFile(REASONS_PAGE, reasonsPage())
  await writeFile(OPENAPI_FILE, await openapiText())
}
