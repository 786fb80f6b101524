/** A string of a JSON text. */
export interface JsonStringPart {
  /** The text without its quotes, in whatever escapes. */
  readonly written: string
  /** The part of the text that it is in: `messages[3]`, `params.arguments`. */
  readonly where: string
}

/** Finds what gives JSON its structure. */
const TOKEN = /[{}[\],:]|"((?:[^"\\]|\\.)*)"/gs

/**
 * Yields the strings of a JSON text in their order, names too, also those of a member that stands twice. Reads a
 * text that is no JSON as far as it has strings in quotes.
 */
export function* jsonStrings(text: string): Generator<JsonStringPart> {
  const places = new PlaceStack()
  for (const [token, written] of text.matchAll(TOKEN)) {
    if (written === undefined) places.structure(token)
    else {
      places.string(written)
      yield { written, where: places.where }
    }
  }
}

/** A container that has begun: an array has an index, an object the name of its member. */
interface OpenContainer {
  readonly isArray: boolean
  index: number
  name: string
}

/** The containers of a part that its place names. */
const MAX_NAMED = 3
/** A name as an API has one. Another may be a secret itself. */
const PLAIN_NAME = /^[a-z_]{1,24}$/

class PlaceStack {
  readonly #open: OpenContainer[] = []
  #depth = 0
  #isName = false

  structure(token: string): void {
    const top = this.#depth <= MAX_NAMED ? this.#open[this.#depth - 1] : undefined
    if (token === '{' || token === '[') this.#begin(token === '[')
    else if (token === '}' || token === ']') this.#end()
    else if (token === ',' && top) top.index += 1
    this.#isName = token === '{' || (token === ',' && top?.isArray === false)
  }

  string(written: string): void {
    const top = this.#depth <= MAX_NAMED ? this.#open[this.#depth - 1] : undefined
    if (this.#isName && top) top.name = PLAIN_NAME.test(written) ? written : '*'
    this.#isName = false
  }

  #begin(isArray: boolean): void {
    this.#depth += 1
    if (this.#depth <= MAX_NAMED) this.#open.push({ isArray, index: 0, name: '' })
  }

  #end(): void {
    if (this.#depth > 0 && this.#depth <= MAX_NAMED) this.#open.pop()
    this.#depth = Math.max(0, this.#depth - 1)
  }

  /** The name of the outermost member, then an index, or the name in it and its index. */
  get where(): string {
    let where = ''
    for (const { isArray, index, name } of this.#open) {
      if (isArray) return `${where}[${index}]`
      if (name !== '') where += where === '' ? name : `.${name}`
      if (where.includes('.') && !this.#isNext(where)) return where
    }
    return where === '' ? 'text' : where
  }

  /** True if a list follows directly. */
  #isNext(where: string): boolean {
    return this.#open[where.split('.').length]?.isArray === true
  }
}
