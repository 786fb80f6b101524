import type { Answered } from '../gateway.ts'
import type { Jar } from '../oidc/jar.ts'

type Fields = Readonly<Record<string, string>>

/** A button of a page, with all that a browser sends when it is pressed and nothing was typed. */
interface Button {
  readonly label: string
  readonly action: string
  readonly fields: Fields
}

const unescaped = (text: string): string =>
  text
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')

const attributesOf = (tag: string): Fields =>
  Object.fromEntries(
    [...tag.matchAll(/ ([a-z-]+)="([^"]*)"/g)].map(([, name = '', value = '']) => [name, unescaped(value)]),
  )

/** The buttons of a page's forms. Its label is what it is called for who does not see it, or else its text. */
export const buttonsIn = (page: string): readonly Button[] =>
  [...page.matchAll(/<form([^>]*)>([\s\S]*?)<\/form>/g)].flatMap(([, head = '', body = '']) => {
    const inputs = [...body.matchAll(/<input([^>]*)>/g)]
      .filter(([tag]) => !/type="(radio|checkbox)"/.test(tag) || / checked[ >]/.test(tag))
      .map(([, tag = '']) => attributesOf(tag))
    const boxes = [...body.matchAll(/<textarea([^>]*)>([\s\S]*?)<\/textarea>/g)].map(
      ([, tag = '', value = '']) => [attributesOf(tag).name ?? '', unescaped(value)] as const,
    )
    const sent = inputs.filter(({ name }) => name !== undefined)
    const fields = Object.fromEntries([
      ...sent.map(({ name = '', value = '' }) => [name, value] as const),
      ...boxes,
    ])
    return [...body.matchAll(/<button([^>]*)>([\s\S]*?)<\/button>/g)].map(([, tag = '', text = '']) => {
      const { name, value = '', formaction, 'aria-label': label = unescaped(text) } = attributesOf(tag)
      return {
        label,
        action: formaction ?? attributesOf(head).action ?? '',
        fields: { ...fields, ...(name !== undefined && { [name]: value }) },
      }
    })
  })

/** Presses a button of a page that a browser shows, with what somebody has typed. Throws where there is none of that label. */
export function press(jar: Jar, page: string, label: string | RegExp, typed: Fields = {}): Promise<Answered> {
  const all = buttonsIn(page)
  const found = all.find((one) => (typeof label === 'string' ? one.label === label : label.test(one.label)))
  if (!found) throw new Error(`no button ${String(label)} among ${all.map((one) => one.label).join(', ')}`)
  return jar.send(found.action, { ...found.fields, ...typed })
}
