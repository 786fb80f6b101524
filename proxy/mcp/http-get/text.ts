import { FetchFailure } from './failure.ts'

const TEXT_TYPES: ReadonlySet<string> = new Set([
  'application/ecmascript',
  'application/graphql',
  'application/javascript',
  'application/json',
  'application/jsonl',
  'application/ld+json',
  'application/sql',
  'application/toml',
  'application/x-javascript',
  'application/x-ndjson',
  'application/x-yaml',
  'application/xml',
  'application/yaml',
])

const MEDIA_TYPE = /^\s*([a-z0-9!#$&^_.+-]{1,80}\/[a-z0-9!#$&^_.+-]{1,80})\s*(?:;|$)/i
const CHARSET = /;\s*charset\s*=\s*"?([a-z0-9_.:-]{1,40})"?\s*(?:;|$)/i

const UTF_8: ReadonlySet<string> = new Set(['utf-8', 'utf8', 'us-ascii', 'ascii'])
const LATIN_1: ReadonlySet<string> = new Set(['iso-8859-1', 'latin1'])

/** A media type that reads as text, and the character set of its bytes. */
export interface TextType {
  /** Lower case, without parameters. */
  readonly mediaType: string
  readonly charset: 'utf-8' | 'iso-8859-1'
}

/**
 * Reads a Content-Type. Refuses with {@link FetchFailure} one that is not text, or not in a character set
 * known here.
 */
export function textType(header: string): TextType {
  const mediaType = MEDIA_TYPE.exec(header)?.[1]?.toLowerCase()
  if (mediaType === undefined)
    throw new FetchFailure('content_type', 'The answer has no readable content type.')
  if (
    !mediaType.startsWith('text/') &&
    !TEXT_TYPES.has(mediaType) &&
    !/\+(?:json|xml|yaml)$/.test(mediaType)
  ) {
    throw new FetchFailure('content_type', `The answer is ${mediaType}, which is not text.`)
  }
  const charset = CHARSET.exec(header)?.[1]?.toLowerCase() ?? 'utf-8'
  if (UTF_8.has(charset)) return { mediaType, charset: 'utf-8' }
  if (LATIN_1.has(charset)) return { mediaType, charset: 'iso-8859-1' }
  throw new FetchFailure('charset', `The answer is in the character set ${charset}, which is not read here.`)
}

/**
 * Decodes bytes as text. Bytes that are no UTF-8 become U+FFFD. `cut`: a character that the cut has split is
 * left out.
 */
export function decodeText(bytes: Buffer, charset: TextType['charset'], cut: boolean): string {
  if (charset === 'iso-8859-1') return bytes.toString('latin1')
  return new TextDecoder('utf-8').decode(bytes, { stream: cut })
}
