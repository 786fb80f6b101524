/** The modes that sentences are judged by. */
export interface ExpectationModes {
  readonly enforceToolsCall: boolean
  readonly httpGet: boolean
}

/** A sentence of the operators' file that must stay true. */
export interface Expectation {
  readonly line: number
  readonly sentence: string
}

/** The sentences in force, and the modes by which they are judged in addition to authority. */
export interface ExpectationsInForce extends ExpectationModes {
  readonly sentences: readonly Expectation[]
}

/** An expectation before a change, and after it. */
export interface ExpectationOutcome extends Expectation {
  readonly before: boolean
  readonly after: boolean
}
