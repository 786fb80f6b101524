import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import type { HintName, LossName, NeverName, TranslationNotes } from '../losses.ts'
import { numberOf } from './exact-json.ts'

/** The class of each member of an object. `read`: its reader looks at it. */
export type MemberClasses = Readonly<
  Record<
    string,
    'read' | { readonly hint: HintName } | { readonly loss: LossName } | { readonly never: NeverName }
  >
>

export const hint = (name: HintName) => ({ hint: name }) as const
export const loss = (name: LossName) => ({ loss: name }) as const
export const never = (name: NeverName) => ({ never: name }) as const

/** An object of a caller's body. Every member of it is in one class; null and what is absent are one. */
export class MemberReader {
  readonly at: string
  readonly notes: TranslationNotes
  readonly #object: UnknownRecord

  constructor(object: unknown, classes: MemberClasses, at: string, notes: TranslationNotes) {
    this.at = at
    this.notes = notes
    this.#object = isObject(object) ? object : {}
    if (!isObject(object)) notes.never('unknown', at)
    for (const [name, value] of Object.entries(this.#object)) {
      const of = Object.hasOwn(classes, name) ? classes[name] : undefined
      if (value !== null && of !== 'read') noteKind(name, classes, this.field(name), notes)
    }
  }

  field(name: string): string {
    return this.at === '' ? name : `${this.at}.${name}`
  }

  /** Null counts as absent. */
  value(name: string): unknown {
    return Object.hasOwn(this.#object, name) ? (this.#object[name] ?? undefined) : undefined
  }

  text(name: string): string | null {
    return this.#of(name, (value) => (typeof value === 'string' ? value : null))
  }

  /** A text that must be there. */
  needed(name: string): string {
    const value = this.text(name)
    if (value === null && this.value(name) === undefined) this.unknown(name)
    return value ?? ''
  }

  flag(name: string): boolean | null {
    return this.#of(name, (value) => (typeof value === 'boolean' ? value : null))
  }

  number(name: string): number | null {
    return this.#of(name, numberOf)
  }

  object(name: string): UnknownRecord | null {
    return this.#of(name, (value) => (isObject(value) ? value : null))
  }

  list(name: string): readonly unknown[] | null {
    return this.#of(name, (value) => (Array.isArray(value) ? (value as readonly unknown[]) : null))
  }

  unknown(name: string): void {
    this.notes.never('unknown', this.field(name))
  }

  #of<Value>(name: string, read: (value: unknown) => Value | null): Value | null {
    const value = this.value(name)
    if (value === undefined) return null
    const found = read(value)
    if (found === null) this.unknown(name)
    return found
  }
}

/** Notes a thing of a kind that is not told, by the class of its kind. */
export function noteKind(kind: unknown, classes: MemberClasses, at: string, notes: TranslationNotes): void {
  const of = typeof kind === 'string' && Object.hasOwn(classes, kind) ? classes[kind] : undefined
  if (of === undefined || of === 'read') notes.never('unknown', at)
  else if ('hint' in of) notes.hint(of.hint)
  else if ('loss' in of) notes.lose(of.loss, at)
  else notes.never(of.never, at)
}
