import { escapeHidden } from '../../visible.ts'

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

const escapeHtml = (text: string): string => text.replaceAll(/[&<>"']/g, (one) => ENTITIES[one] ?? '')

/** A piece of HTML: only {@link html} makes one. */
export class HtmlFragment {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** A value of a template: pieces one after the other; false for nothing. */
type HtmlValue = string | HtmlFragment | readonly HtmlFragment[] | false

/**
 * Escapes every value but HTML itself. Text for people shows hidden characters, line feeds and tabs aside, as
 * `\u{200b}` (docs/threats.md#h15). Exact are `textarea`, and attributes other than {@link READ_ATTRIBUTES}:
 * forms and scripts give them back.
 */
export const html = (parts: TemplateStringsArray, ...values: readonly HtmlValue[]): HtmlFragment => {
  const areRead = readablePlacesOf(parts)
  return new HtmlFragment(
    parts.reduce(
      (text, part, at) => text + escapeValue(values[at - 1] ?? '', areRead[at - 1] ?? true) + part,
    ),
  )
}

/** A text of ours that a script or a person takes along: escaped, and else exact. Never a stranger's word. */
export const exactHtml = (text: string): HtmlFragment => new HtmlFragment(escapeHtml(text))

const READ_ATTRIBUTES = ['title', 'aria-label', 'alt', 'placeholder', 'data-button']

const readablePlaces = new WeakMap<TemplateStringsArray, readonly boolean[]>()

function readablePlacesOf(parts: TemplateStringsArray): readonly boolean[] {
  const found = readablePlaces.get(parts) ?? findReadablePlaces(parts)
  readablePlaces.set(parts, found)
  return found
}

function findReadablePlaces(parts: readonly string[]): readonly boolean[] {
  let before = ''
  return parts.slice(0, -1).map((part) => {
    before += part
    const attribute = /(?:^|[\s"'])([\w-]+)=(?:"[^"]*|'[^']*)$/.exec(before)?.[1]
    const place =
      attribute === undefined ? !/<textarea[^>]*>[^<]*$/.test(before) : READ_ATTRIBUTES.includes(attribute)
    // Stands for the value: whether it has a quotation mark is no matter.
    before += 'x'
    return place
  })
}

const escapeValue = (value: HtmlValue, isRead: boolean): string => {
  if (value === false) return ''
  if (value instanceof HtmlFragment) return value.text
  if (typeof value !== 'string') return value.map(({ text }) => text).join('')
  return escapeHtml(isRead ? showHidden(value) : value)
}

// Most texts need no look at all.
const showHidden = (text: string): string =>
  /[^\n\t\x20-\x7e]/.test(text) ? text.replace(/[^\n\t]+/g, escapeHidden) : text

export const EMPTY_HTML = html``
