import type { JsonSpan } from '../../../plugins/json-body/scan.ts'

export interface ReadParams {
  /** Lower-case hex SHA-256 of salt and canonical form (RFC 8785), and of the latter alone. */
  readonly commitment: string
  readonly sha256: string
  readonly bytes: number
  readonly spans: ReadonlyMap<string, JsonSpan>
}

export interface ArgumentsVerdict {
  /** Null, or one sentence that holds no value of theirs. */
  readonly fault: string | null
  /** True if the schema is so small that the thread that serves may compile it too. */
  readonly small: boolean
}

export interface ToolCandidate {
  /** JSON of an object, as the upstream wrote it: fields that nobody knows are still in it. */
  readonly text: string
  /** The approved definition of that tool, or null. */
  readonly pinned: string | null
  /** The digest of the definition that is as it was, or null. */
  readonly known: string | null
  /** The same, as {@link JudgedTool.earlierDigest} has it. */
  readonly earlierKnown: string | null
}

export interface JudgedTool {
  /** Lower-case hex SHA-256 of the canonical form (RFC 8785) of the whole definition. */
  readonly digest: string
  /**
   * The same of six members alone, which versions before 0.7 approved: a pin of theirs holds until one of
   * these changes. Null if a member folds onto a known one, which no such pin may cover.
   */
  readonly earlierDigest: string | null
  /** Null if the digest is the known one: then there is nothing to tell. */
  readonly news: ToolFindings | null
}

export interface ToolFindings {
  /** The members that fold onto known ones, and `toolFlags`. */
  readonly flags: readonly string[]
  readonly changes: readonly string[]
}

/** `odd`: it cannot be used; a sentence about it that holds nothing of its definition. */
export type ToolJudgement = JudgedTool | { readonly odd: string }

/** An argument that a header repeats (MCP 2026-07-28, custom headers from tool parameters). */
export interface HeaderParam {
  /** Lower case: `mcp-param-region`. */
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

  readonly judgeTool: (asked: ToolCandidate) => ToolJudgement

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
    readonly headerParams: readonly HeaderParam[]
    readonly listed: string
    readonly modernOutput: boolean
    readonly spans: ReadonlyMap<string, JsonSpan>
  }
}
