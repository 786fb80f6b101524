/** The configuration as pages show it: names and places, and no value that could be a secret. */
export interface ConfigurationInForce {
  readonly modes: readonly ModeInForce[]
  readonly files: readonly FileInForce[]
}

export interface ModeInForce {
  readonly name: 'egress_dpop_mode' | 'no_downgrade' | 'enforce_tools_call'
  readonly value: string
  /** All that it may be. */
  readonly values: readonly string[]
  /** The path of the file that says it, or would; null if no file is of its plugin. */
  readonly path: string | null
  /** Null: no line says it, and this is the default. */
  readonly line: number | null
  /** The variable of the environment that says it in place of the file; null: none does. */
  readonly variable: string | null
}

export interface FileInForce {
  readonly file: string
  readonly path: string
  readonly plugin: string
  /** True: a check that only watches. */
  readonly shadow: boolean
  /** Hex SHA-256 of its text, but for the line that says `shadow`. */
  readonly digest: string
  /** The options that it names, each with its line. */
  readonly options: readonly { readonly name: string; readonly line: number }[]
}
