import { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import type { FormSubmission } from './acting.ts'
import type { DashboardContext } from './dashboard.ts'
import { type DashboardPage, frame } from './frame.ts'
import { EMPTY_HTML, HtmlFragment, html, problemList } from './parts.ts'

type SentFields = FormSubmission['form']

/**
 * Makes the handler of a form show what was refused on the page that it stands on: in the form itself, by the
 * words of its labels and with what was sent, or above the page if nothing can be typed there.
 */
export const refusedOnItsForm =
  (
    dashboard: DashboardContext,
    pageOf: () => DashboardPage | null,
    handler: (facts: FormSubmission) => Promise<Reply>,
  ): typeof handler =>
  async (facts) => {
    try {
      return await handler(facts)
    } catch (error) {
      if (!(error instanceof Refusal) || error.status >= 500) throw error
      const page = pageOf()
      const content = page && (await pageOrNull(page, dashboard, { ...facts, query: '' }))
      if (content === null) throw error
      const { status, headers } = error
      const body = refusedIn(content.body.text, facts, error)
      const reply = await frame(dashboard, facts, { ...content, status, body })
      return { ...reply, headers: { ...reply.headers, ...headers } }
    }
  }

/** Null: it is not there any more, or its reader may not see it. */
async function pageOrNull(page: DashboardPage, dashboard: DashboardContext, facts: FormSubmission) {
  try {
    return await page(dashboard, facts)
  } catch (error) {
    if (error instanceof Refusal) return null
    throw error
  }
}

const FORM = /(<form[^>]*>)([\s\S]*?)<\/form>/g
/** A field that somebody sees. In our pages an attribute holds no `>`. */
const FIELD =
  /<input(?![^>]* type="hidden")([^>]*)>|<textarea([^>]*)>([^<]*)<\/textarea>|<select([^>]*)>([\s\S]*?)<\/select>/g

/** The page's text with the refusal in the form that sent it. */
function refusedIn(page: string, { path, form: sent }: FormSubmission, refusal: Refusal): HtmlFragment {
  const found = [...page.matchAll(FORM)].find(
    ([, head = '', body = '']) =>
      isSentTo(path, [attributeIn(head, 'action'), ...attributesIn(body, 'formaction')]) && holds(body, sent),
  )
  if (!found) return html`${problemList(refusal)}${new HtmlFragment(page)}`
  const [whole, head = '', body = ''] = found
  const at = found.index
  const isWrong = wrongFields(refusal)
  const filled = `${head}${problemList(refusal, labelsIn(body, sent)).text}${fillForm(body, sent, isWrong)}</form>`
  return new HtmlFragment(opened(page.slice(0, at)) + filled + page.slice(at + whole.length))
}

const attributesIn = (text: string, name: string): readonly string[] =>
  [...text.matchAll(new RegExp(` ${name}="([^"]*)"`, 'g'))].map(([, value = '']) => unescapeHtml(value))

const attributeIn = (tag: string, name: string): string => attributesIn(tag, name)[0] ?? ''

const unescapeHtml = (text: string): string =>
  text
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&amp;', '&')

// The path as it came may spell a letter otherwise than the page does.
const isSentTo = (path: string, actions: readonly string[]): boolean =>
  actions.some((action) => action !== '' && decodeURIComponent(action) === decodeURIComponent(path))

/** True if something can be typed there, and what was sent is among its fields. */
function holds(body: string, sent: SentFields): boolean {
  const names = new Set([...body.matchAll(FIELD)].map(([tag]) => attributeIn(tag, 'name')))
  const all = new Set(attributesIn(body, 'name'))
  return names.size > 0 && [...sent.keys()].every((name) => all.has(name) || CONFIRMING.has(name))
}

/** The fields of a second press, which the form itself does not have. */
const CONFIRMING: ReadonlySet<string> = new Set(['confirm', 'force_reason'])

/** An enclosing `details` before the end of `text` is opened. */
function opened(text: string): string {
  const at = text.lastIndexOf('<details')
  const isInside = at >= 0 && !text.includes('</details>', at)
  return isInside && !/^<details[^>]* open/.test(text.slice(at))
    ? `${text.slice(0, at)}<details open${text.slice(at + '<details'.length)}`
    : text
}

function fillForm(body: string, sent: SentFields, isWrong: (field: string) => boolean): string {
  // The browser goes to the first of them, and so to the form.
  let focus: HtmlFragment = html` autofocus`
  return body.replace(FIELD, (tag, input, area, _text, select, options) => {
    const attributes: string = input ?? area ?? select
    const name = attributeIn(attributes, 'name')
    const value = sent.get(name)
    const marks = `${isWrong(name) ? ' aria-invalid="true"' : ''}${focus.text}`
    if (/ type="(?:radio|checkbox)"/.test(attributes))
      return `<input${attributes.replace(' checked', '')}${value === attributeIn(attributes, 'value') ? ' checked' : ''}>`
    focus = EMPTY_HTML
    if (value === undefined) return tag
    if (/ type="password"/.test(attributes)) return `<input${attributes}${marks}>`
    if (area !== undefined)
      return `<textarea${area}${marks}>${html`<textarea>${value}</textarea>`.text.slice(10)}`
    if (select !== undefined) return `<select${select}${marks}>${chosen(options, value)}</select>`
    return `<input${attributes.replace(/ value="[^"]*"/, '')}${html` value="${value}"`.text}${marks}>`
  })
}

const chosen = (options: string, value: string): string =>
  options.replace(/<option([^>]*)>([^<]*)/g, (_, attributes: string, text: string) => {
    const own = attributes.includes(' value=') ? attributeIn(attributes, 'value') : unescapeHtml(text)
    return `<option${attributes.replace(' selected', '')}${own === value ? ' selected' : ''}>${text}`
  })

function wrongFields({ detail }: Refusal): (field: string) => boolean {
  const { errors = [] } = detail as { errors?: readonly { readonly field: string }[] }
  const names = new Set(errors.map(({ field }) => lastName(field)))
  return (field) => names.has(field)
}

// A field of a form is a member of the body, or a member of one: `attach.ca_pem`, `capabilities[1]`.
const lastName = (field: string): string => field.replace(/\[\d+\]$/, '').replace(/^.*\./, '')

/** Calls a field by its label; of a list of words, the word that is wrong. */
function labelsIn(body: string, sent: SentFields): (field: string) => string {
  const labels = new Map(
    [...body.matchAll(/<label[^>]*>([^<]*)<(?:input|textarea|select)([^>]*)>/g)].map(
      ([, text = '', attributes = '']) =>
        [attributeIn(attributes, 'name'), unescapeHtml(text.trim())] as const,
    ),
  )
  return (field) => {
    const [, name = '', at = ''] = /^(?:.*\.)?(\w+)\[(\d+)\]$/.exec(field) ?? []
    const words = [...new Set((sent.get(name) ?? '').split(',').flatMap((word) => word.trim() || []))]
    return words[Number(at)] ?? labels.get(lastName(field)) ?? field
  }
}
