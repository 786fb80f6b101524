const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Text as it stands in HTML, between tags and in quoted attributes alike. */
export const escapeHtml = (text: string): string => text.replaceAll(/[&<>"']/g, (one) => ENTITIES[one] ?? '')

/** A piece of HTML: what {@link html} has made, and nothing else. */
export class Html {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** Puts HTML together: every value but HTML itself is escaped. */
export const html = (parts: TemplateStringsArray, ...values: readonly (string | Html)[]): Html =>
  new Html(parts.reduce((text, part, at) => text + escaped(values[at - 1] ?? '') + part))

const escaped = (value: string | Html): string => (typeof value === 'string' ? escapeHtml(value) : value.text)

export const NOTHING = html``
