import { isObject, type Members } from '../../../db/json.ts'
import { type Scan, scanJson } from '../../../plugins/json-body/scan.ts'

/**
 * A JSON object, as it is written and as it is read: a member that nobody changes is passed on byte for byte.
 */
export interface JsonText {
  readonly bytes: Buffer
  readonly value: Members
  readonly spans: Scan['spans']
  readonly escapedNames: boolean
}

/** Reads the bytes of one JSON object strictly. Throws a Refusal or a SyntaxError for anything else. */
export function readObject(bytes: Buffer): JsonText {
  const scan = scanJson(bytes, 1)
  const value: unknown = JSON.parse(bytes.toString('utf8'))
  if (!isObject(value)) throw new SyntaxError('a JSON object was expected')
  return { bytes, value, ...scan }
}

/**
 * Reads a member of an object that was read strictly, where it is itself an object, as {@link readObject}
 * does. The places of its own members are looked for when they are first used.
 */
export function memberObject(
  { bytes, value, spans }: Pick<JsonText, 'bytes' | 'value' | 'spans'>,
  name: string,
): JsonText | null {
  const span = spans.get(name)
  const member = value[name]
  if (!span || !isObject(member)) return null
  const own = bytes.subarray(span.start, span.end)
  let known: Scan | null = null
  const scan = (): Scan => {
    known ??= scanJson(own, 1)
    return known
  }
  return {
    bytes: own,
    value: member,
    get spans() {
      return scan().spans
    },
    get escapedNames() {
      return scan().escapedNames
    },
  }
}

/** Changes to an object: JSON text for a member, in place of its own or added; null leaves the member out. */
export type Edits = Readonly<Record<string, string | null>>

/** Writes an object with these edits, every other member as it was written and in its place. */
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

/** Returns the text of one member, as it was written. */
export function memberText({ bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>, name: string): string | null {
  const span = spans.get(name)
  return span ? bytes.toString('utf8', span.start, span.end) : null
}
