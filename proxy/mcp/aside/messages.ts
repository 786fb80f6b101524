import type { SecretTraces } from '../../../plugins/secrets/traces.ts'

/** The place of a value in JSON text. Byte offsets, `end` exclusive. */
interface JsonValueSpan {
  readonly start: number
  readonly end: number
}

/** The parameters of a call, read. */
export interface ReadParams {
  /**
   * Digests of the judged arguments in canonical form (RFC 8785), lower-case hex: the SHA-256 of salt and
   * bytes, and of the bytes alone.
   */
  readonly commitment: string
  readonly sha256: string
  readonly bytes: number
  /** The place of each member's value in the parameters. */
  readonly spans: ReadonlyMap<string, JsonValueSpan>
}

/** The verdict on the arguments of a call. */
export interface ArgumentsVerdict {
  /** Null, or one sentence that holds no value of theirs. */
  readonly fault: string | null
  /** True if the schema is so small that the thread that serves may compile it too. */
  readonly small: boolean
}

/** A tool of a list, as far as it has to be known; of an odd one, the reason. */
export type ToolVerdict = ToolFacts | { readonly odd: string }

interface ToolFacts {
  readonly digest: string
  /** The digest that versions before 0.7 made. */
  readonly earlierDigest: string | null
  /** Null if the digest is the known one. */
  readonly news: { readonly flags: readonly string[]; readonly changes: readonly string[] } | null
}

/** An argument that a header repeats. */
interface HeaderParamMessage {
  readonly header: string
  readonly path: readonly string[]
  readonly type: 'boolean' | 'integer' | 'string'
}

/** A large message of an upstream, without its large parts. */
export interface TruncatedMessage {
  /** True if one of the traces is in it. */
  readonly echo: boolean
  readonly value: Readonly<Record<string, unknown>>
  /** The place of each outermost member's value. */
  readonly spans: ReadonlyMap<string, JsonValueSpan>
  /** Keyed by name: the searched members, and the places of their members' values in them. */
  readonly inner: ReadonlyMap<
    string,
    { readonly spans: ReadonlyMap<string, JsonValueSpan>; readonly escapedNames: boolean }
  >
}

/** The items of a list in a result: no more than 10,000 of a large one. */
export interface ListItems {
  /** JSON text of each, written again. Null for anything but an object. */
  readonly texts: readonly (string | null)[]
  /** The name of each as the server wrote it. Null if it has none that is text. */
  readonly names: readonly (string | null)[]
}

/** The tasks of the threads: their inputs and results. */
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
    /** The commitment's salt. */
    readonly salt: string
  }) => ReadParams | null

  /** Checks arguments, JSON text of an object, against the schema of a tool's definition. */
  readonly judgeArguments: (asked: {
    readonly digest: string
    readonly definition: string
    readonly args: Uint8Array | string
  }) => ArgumentsVerdict

  /**
   * Judges a tool of a list: `pinned` is its approved definition, `known` and `earlierKnown` the digests that
   * need no judgement.
   */
  readonly judgeTool: (asked: {
    readonly text: string
    readonly pinned: string | null
    readonly known: string | null
    readonly earlierKnown: string | null
  }) => ToolVerdict

  /** Reads a message of an upstream. */
  readonly readMessage: (asked: {
    readonly bytes: Uint8Array
    readonly traces: SecretTraces
  }) => TruncatedMessage

  /**
   * Reads the list that a member of a message's result is; null if it is none. `prefix` goes before each
   * name.
   */
  readonly listItems: (asked: {
    readonly bytes: Uint8Array
    readonly member: string
    readonly prefix: string
  }) => ListItems | null

  /**
   * Writes the list that a member of a message's result is, of the known members of its items; null: there is
   * none.
   */
  readonly knownList: (asked: { readonly bytes: Uint8Array; readonly member: string }) => string | null

  /** Compares two definitions of a tool. */
  readonly changesBetween: (asked: {
    readonly pinned: string | null
    readonly pending: string
  }) => readonly string[]

  /** Takes a pinned definition apart. */
  readonly takeApart: (definition: string) => {
    readonly headerParams: readonly HeaderParamMessage[]
    /** JSON: its known members. */
    readonly listed: string
    /** Their places in that. */
    readonly spans: ReadonlyMap<string, JsonValueSpan>
  }
}
