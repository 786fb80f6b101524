import { isObject } from '../../../../db/support/json.ts'
import type { TranslationNotes } from '../losses.ts'
import type { RequestReading } from '../model/reading.ts'
import type { ContentPart, TextPart } from '../model/request.ts'
import type { ToolNames } from '../names.ts'
import { type MemberClasses, MemberReader, noteKind } from '../request/members.ts'
import { MESSAGES, MESSAGES_BLOCKS } from './fields.ts'

/** Reads the content of messages (@anthropic-ai/sdk, BetaContentBlockParam). */
export class MessageContentReader {
  readonly #notes: TranslationNotes
  readonly #names: ToolNames

  constructor({ notes, names }: Pick<RequestReading, 'notes' | 'names'>) {
    this.#notes = notes
    this.#names = names
  }

  texts(content: unknown, at: string): TextPart[] {
    const parts = this.parts(content, at)
    const texts = parts.filter((part) => part.kind === 'text')
    if (texts.length < parts.length) this.#notes.never('unknown', at)
    return texts
  }

  parts(content: unknown, at: string): ContentPart[] {
    if (typeof content === 'string') return [{ kind: 'text', text: content }]
    if (Array.isArray(content))
      return content.flatMap((block: unknown, index) => this.part(block, `${at}[${index}]`))
    this.#notes.never('unknown', at)
    return []
  }

  part(block: unknown, at: string): ContentPart[] {
    const type = isObject(block) ? block.type : null
    if (type === 'text') {
      const text = this.#of(block, MESSAGES.text, at)
      if ((text.list('citations') ?? []).length > 0) this.#notes.lose('citations', text.field('citations'))
      return [{ kind: 'text', text: text.needed('text') }]
    }
    if (type === 'image') return this.#media('image', this.#of(block, MESSAGES.image, at))
    if (type === 'document') return this.#document(this.#of(block, MESSAGES.document, at))
    if (type === 'search_result') return this.#searchResult(this.#of(block, MESSAGES.searchResult, at))
    if (type === 'tool_reference') {
      this.#notes.carry('tool_reference')
      const name = this.#of(block, MESSAGES.toolReference, at).needed('tool_name')
      return [{ kind: 'text', text: `[tool ${this.#names.nameOf({ name, namespace: null })} is available]` }]
    }
    noteKind(type, MESSAGES_BLOCKS, at, this.#notes)
    return []
  }

  #searchResult(result: MemberReader): ContentPart[] {
    this.#notes.carry('document_text')
    if (result.value('citations') !== undefined) this.#notes.lose('citations', result.field('citations'))
    const texts = this.texts(result.value('content'), result.field('content'))
    return [{ kind: 'text', text: `${result.needed('title')} (${result.needed('source')})` }, ...texts]
  }

  #document(document: MemberReader): ContentPart[] {
    const citations = document.object('citations')
    if (citations && citations.enabled === true) this.#notes.lose('citations', document.field('citations'))
    const context = document.text('context')
    const parts = this.#media('document', document)
    return context === null ? parts : [{ kind: 'text', text: context }, ...parts]
  }

  #media(kind: 'image' | 'document', block: MemberReader): ContentPart[] {
    const source = this.#of(block.object('source'), MESSAGES.source, block.field('source'))
    const title = kind === 'document' ? block.text('title') : null
    const type = source.text('type')
    if (type === 'base64')
      return [{ kind, type: source.needed('media_type'), data: source.needed('data'), title }]
    if (type === 'url') return [{ kind, type: null, url: source.needed('url'), title }]
    if (type === 'text') return [{ kind, type: 'text/plain', text: source.needed('data'), title }]
    if (type === 'content') return this.parts(source.value('content'), source.field('content'))
    this.#notes.never(type === 'file' ? 'provider_state' : 'unknown', source.at)
    return []
  }

  #of(object: unknown, classes: MemberClasses, at: string): MemberReader {
    return new MemberReader(object, classes, at, this.#notes)
  }
}
