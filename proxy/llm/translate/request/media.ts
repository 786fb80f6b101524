import type { TranslationNotes } from '../losses.ts'
import type { MediaPart } from '../model/request.ts'

const DATA_URL = /^data:([\w.+-]+\/[\w.+-]+)(?:;charset=[\w-]+)?;base64,/i
/** The longest beginning of a data URL that is looked at. Characters. */
const MAX_HEAD = 256

interface DataUrl {
  readonly type: string
  readonly data: string
}

/** Takes a data URL apart; null: it is none in base64. Does NOT check the base64. */
function parseDataUrl(url: string): DataUrl | null {
  const [head, type] = DATA_URL.exec(url.slice(0, MAX_HEAD)) ?? []
  return head === undefined || type === undefined
    ? null
    : { type: type.toLowerCase(), data: url.slice(head.length) }
}

/** Reads a picture by its URL. Notes one that no provider may fetch; null then. */
export function imageOf(url: string, at: string, notes: TranslationNotes): MediaPart | null {
  const inline = parseDataUrl(url)
  if (inline) return { kind: 'image', ...inline, title: null }
  if (/^https:\/\//i.test(url)) return { kind: 'image', type: null, url, title: null }
  notes.never('unknown', at)
  return null
}

/** Reads a document by a data URL. Notes one that is neither a PDF nor text; null then. */
export function documentOf(
  url: string,
  title: string | null,
  at: string,
  notes: TranslationNotes,
): MediaPart | null {
  const inline = parseDataUrl(url)
  if (inline?.type === 'application/pdf') return { kind: 'document', ...inline, title }
  if (inline?.type.startsWith('text/'))
    return {
      kind: 'document',
      type: 'text/plain',
      text: Buffer.from(inline.data, 'base64').toString(),
      title,
    }
  notes.never('unknown', at)
  return null
}
