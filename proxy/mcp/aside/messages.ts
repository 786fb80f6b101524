/** The place of a value in JSON text. Byte offsets, `end` exclusive. */
interface JsonValueSpan {
  readonly start: number
  readonly end: number
}

export interface ReadParams {
  /** Lower-case hex SHA-256 of salt and canonical form (RFC 8785), and of the latter alone. */
  readonly commitment: string
  readonly sha256: string
  readonly bytes: number
  readonly spans: ReadonlyMap<string, JsonValueSpan>
}

export interface ArgumentsVerdict {
  /** Null, or one sentence that holds no value of theirs. */
  readonly fault: string | null
  /** True if the schema is so small that the thread that serves may compile it too. */
  readonly small: boolean
}

export type ToolVerdict = ToolFacts | { readonly odd: string }

interface ToolFacts {
  readonly digest: string
  /** The digest that versions before 0.7 made. */
  readonly earlierDigest: string | null
  /** Null if the digest is the known one. */
  readonly news: { readonly flags: readonly string[]; readonly changes: readonly string[] } | null
}

interface HeaderParamMessage {
  readonly header: string
  readonly path: readonly string[]
  readonly type: 'boolean' | 'integer' | 'string'
}

/** The items of a list in a result: at most 10,000 of a large one. */
export interface ListItems {
  /** JSON text of each, written again. Null for anything but an object. */
  readonly texts: readonly (string | null)[]
  /** The name of each as the server wrote it. Null if it has none that is text. */
  readonly names: readonly (string | null)[]
}

export interface McpThreadTasks {
  /**
   * Reads parameters, and makes the canonical form of `member`, or of all but `_meta` and `without`. Text: an
   * earlier reading, written again. Gives null for bytes if a name is written with an escape: only their text
   * tells how it was read.
   */
  readonly readParams: (asked: {
    readonly params: Uint8Array | string
    readonly member: 'arguments' | null
    readonly without: readonly string[]
    readonly salt: string
  }) => ReadParams | null

  readonly judgeArguments: (asked: {
    readonly digest: string
    readonly definition: string
    readonly args: Uint8Array | string
  }) => ArgumentsVerdict

  /** `pinned`: the approved definition; `known` and `earlierKnown`: the digests that need no judgement. */
  readonly judgeTool: (asked: {
    readonly text: string
    readonly pinned: string | null
    readonly known: string | null
    readonly earlierKnown: string | null
  }) => ToolVerdict

  /** Null if the member is no list. `prefix` goes before each name. */
  readonly listItems: (asked: {
    readonly bytes: Uint8Array
    readonly member: string
    readonly prefix: string
  }) => ListItems | null

  /** JSON text of the items' known members; null if the member is no list. */
  readonly knownList: (asked: { readonly bytes: Uint8Array; readonly member: string }) => string | null

  readonly changesBetween: (asked: {
    readonly pinned: string | null
    readonly pending: string
  }) => readonly string[]

  readonly takeApart: (definition: string) => {
    readonly headerParams: readonly HeaderParamMessage[]
    readonly listed: string
    readonly modernOutput: boolean
    readonly spans: ReadonlyMap<string, JsonValueSpan>
  }
}
