/** The start of an evaluator thread. */
export interface EvaluatorOptions {
  /** A compiled policy as `opa build -t wasm` makes it. */
  readonly wasm: Uint8Array
  /** JSON text of an object, or null if the policy has no data. */
  readonly data: string | null
  readonly entrypoint: string
  /** The bounds of the policy's memory, in pages of 64 KiB. */
  readonly initialPages: number
  readonly maximumPages: number
}

/** To it goes the input by itself, JSON text; it answers each in turn. */
export type EvaluatorMessage =
  | { readonly kind: 'ready' }
  /** The policy cannot be used at all. */
  | { readonly kind: 'unusable'; readonly message: string }
  /** `answer`: JSON text, or null if the policy defines none. */
  | { readonly kind: 'answered'; readonly answer: string | null }
  | { readonly kind: 'failed'; readonly message: string }
