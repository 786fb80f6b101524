import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { CATALOGUE } from '../proxy/configuration.ts'

/** Where the schemas are published; the first line of each file in `plugins/config` points here. */
export const SCHEMA_DIRECTORY = join(import.meta.dirname, '../docs/schema')

/** The JSON Schema of each operator file (2020-12), by file name: for completion and checks in editors. */
export function schemaFiles(): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(CATALOGUE).map(([plugin, { options }]) => [
      `${plugin}.schema.json`,
      `${JSON.stringify(schemaOf(plugin, options), null, 2)}\n`,
    ]),
  )
}

function schemaOf(plugin: string, options: z.ZodType): object {
  const { $schema, properties = {}, required = [], ...rest } = z.toJSONSchema(options, { io: 'input' })
  return {
    $schema,
    title: `plugins/config: ${plugin}`,
    ...rest,
    properties: {
      plugin: { const: plugin, description: 'The plugin that this file configures.' },
      ...properties,
    },
    required: ['plugin', ...required],
  }
}

if (import.meta.main) {
  await mkdir(SCHEMA_DIRECTORY, { recursive: true })
  for (const [file, text] of schemaFiles()) await writeFile(join(SCHEMA_DIRECTORY, file), text)
}
