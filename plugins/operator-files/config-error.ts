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

/** A mistake and its place. `file` is the name inside the configuration directory. */
export interface ConfigProblem extends FileFault {
  readonly file: string
}

/** The place of a fault of a file as a whole. */
export const FILE_START: FilePosition = { line: 1, column: 1 }

/**
 * Everything that is wrong with an operator's files, at once. The message has one line per problem,
 * `path:line:column: sentence`. It never holds an expanded value, which may be a secret.
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly problems: readonly ConfigProblem[]
  /**
   * The lines of the message. A file's name or its words may have a line feed: only here are they told apart.
   */
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
