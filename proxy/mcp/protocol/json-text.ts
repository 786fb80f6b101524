import { type Scan, scanJson } from '../../../plugins/json-body/scan.ts'

/** A JSON object, as it is written and as it is read: what nobody changes is passed on byte for byte. */
export interface JsonText {
  readonly bytes: Buffer
  readonly value: Readonly<Record<string, unknown>>
  readonly spans: Scan['spans']
  readonly escapedNames: boolean
}

/** Reads the bytes of one JSON object strictly. Throws a Refusal or a SyntaxError where they are anything else. */
export function readObject(bytes: Buffer): JsonText {
  const scan = scanJson(bytes, 1)
  const value: unknown = JSON.parse(bytes.toString('utf8'))
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new SyntaxError('a JSON object was expected')
  }
  // Neither null nor an array: what JSON.parse makes of `{…}`.
  return { bytes, value: value as Record<string, unknown>, ...scan }
}

/**
 * A member of an object that was read strictly, where it is itself an object: as {@link readObject} reads it, but for where
 * its members stand, which is looked for when it is asked.
 */
export function memberObject(
  { bytes, value, spans }: Pick<JsonText, 'bytes' | 'value' | 'spans'>,
  name: string,
): JsonText | null {
  const span = spans.get(name)
  const member: unknown = value[name]
  if (!span || typeof member !== 'object' || member === null || Array.isArray(member)) return null
  const own = bytes.subarray(span.start, span.end)
  let known: Scan | null = null
  const scan = (): Scan => {
    known ??= scanJson(own, 1)
    return known
  }
  return {
    bytes: own,
    // Neither null nor an array: what JSON.parse makes of `{…}`.
    value: member as Record<string, unknown>,
    get spans() {
      return scan().spans
    },
    get escapedNames() {
      return scan().escapedNames
    },
  }
}

/** How an object is to be changed: JSON text for a member, in place of what is there or added; null leaves it out. */
export type Edits = Readonly<Record<string, string | null>>

/** The object's text with these edits, every other member as it was written and in its place. */
export function edited({ bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>, edits: Edits): string {
  const members: string[] = []
  for (const [name, { start, end }] of spans) {
    const edit = Object.hasOwn(edits, name) ? edits[name] : undefined
    if (edit === null) continue
    members.push(`${JSON.stringify(name)}:${edit ?? bytes.toString('utf8', start, end)}`)
  }
  for (const [name, text] of Object.entries(edits)) {
    if (text !== null && !spans.has(name)) members.push(`${JSON.stringify(name)}:${text}`)
  }
  return `{${members.join(',')}}`
}

/** The text of one member, as it was written. */
export function memberText({ bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>, name: string): string | null {
  const span = spans.get(name)
  return span ? bytes.toString('utf8', span.start, span.end) : null
}
