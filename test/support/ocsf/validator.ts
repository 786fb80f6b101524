import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'

interface OcsfSchemas {
  readonly version: string
  readonly $defs: object
  readonly classes: Readonly<Record<string, object>>
}

const FILE = join(import.meta.dirname, 'schema.json')

/** The schemas made by write-schema.ts, and what each says against an event. */
export function ocsfSchemas() {
  const { version, $defs, classes }: OcsfSchemas = JSON.parse(readFileSync(FILE, 'utf8'))
  const ajv = new Ajv2020({ strict: false, allErrors: true })
  const validators = new Map<string, ValidateFunction>(
    Object.entries(classes).map(([uid, schema]) => [uid, ajv.compile({ ...schema, $defs })]),
  )
  return {
    version,
    /** The faults of an event; none if it is right. */
    faults: (event: Readonly<Record<string, unknown>>): readonly string[] => {
      const validate = validators.get(String(event.class_uid))
      if (!validate) return [`there is no class ${String(event.class_uid)}`]
      if (validate(event)) return []
      return (validate.errors ?? []).map(({ instancePath, message, params }) =>
        [instancePath, message, JSON.stringify(params)].join(' '),
      )
    },
  }
}
