import { join } from 'node:path'

/** A place in an operator's file. Both count from 1. */
export interface FilePosition {
  readonly line: number
  readonly column: number
}

/** A mistake at a place of a file whose name the context knows. */
export interface FileFault extends FilePosition {
  readonly message: string
}

export interface ConfigProblem extends FileFault {
  readonly file: string
}

export const FILE_START: FilePosition = { line: 1, column: 1 }

/** Everything wrong with an operator's files, each `path:line:column: sentence`, with no value expanded. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly problems: readonly ConfigProblem[]
  /** The lines of the message; one may hold a line feed of a file's. */
  readonly lines: readonly string[]

  constructor(directory: string, problems: readonly ConfigProblem[]) {
    const lines = problems.map((problem) => line(directory, problem))
    super(lines.join('\n'))
    this.problems = problems
    this.lines = lines
  }
}

const line = (directory: string, { file, line: row, column, message }: ConfigProblem): string =>
  `${join(directory, file)}:${row}:${column}: ${message}`
