export interface PolicyEngine {
  /** Resolves with the parsed answer, or undefined. Rejects with an Error if there is none in time. */
  readonly evaluate: (input: string) => Promise<unknown>
  /** Closes the resources kept ready. A call of an old configuration is answered all the same. */
  readonly close: () => Promise<void>
}

/** An answer is a verdict and a sentence. Bytes. */
export const MAX_ANSWER_BYTES = 65_536
/** Further questions are refused while so many are under way. */
export const MAX_QUESTIONS = 1024
