/** One instruction of a Dockerfile, its continued lines joined. */
export interface Instruction {
  readonly word: string
  readonly rest: string
}

/** One stage: what stands between two `FROM`, the `FROM` itself first. */
export type Stage = readonly Instruction[]

/** Reads a Dockerfile into its stages. Instructions before the first `FROM` are a stage of their own. Expands no variable. */
export function stagesOf(text: string): readonly Stage[] {
  const lines = text.replaceAll(/^#.*\n/gm, '').replaceAll(/\\\n/g, ' ')
  const stages: Instruction[][] = [[]]
  for (const [, word = '', rest = ''] of lines.matchAll(/^([A-Z]+)[ \t]+(.*)$/gm)) {
    if (word === 'FROM') stages.push([])
    stages.at(-1)?.push({ word, rest: rest.trim().replaceAll(/[ \t]+/g, ' ') })
  }
  return stages
}

/** Returns what follows each instruction of this word in a stage. */
export const every = (stage: Stage, word: string): readonly string[] =>
  stage.filter((instruction) => instruction.word === word).map(({ rest }) => rest)

/** Returns what follows the one instruction of this word. Throws where there is none, or more than one. */
export function only(stage: Stage, word: string): string {
  const [rest, ...more] = every(stage, word)
  if (rest !== undefined && more.length === 0) return rest
  throw new Error(`there must be one ${word}, there are ${every(stage, word).length}`)
}

/** Reads the `KEY=value` pairs of every `ENV` of a stage. Values are without quotes and blanks. */
export const environmentOf = (stage: Stage): Readonly<Record<string, string>> =>
  Object.fromEntries(
    every(stage, 'ENV')
      .flatMap((rest) => rest.split(' '))
      .map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]),
  )

/** A `COPY` of one path. `from`: the stage, or null for the builder's context. */
export interface Copy {
  readonly from: string | null
  readonly source: string
  readonly target: string
  readonly owner: string | null
}

export function copiesOf(stage: Stage): readonly Copy[] {
  return every(stage, 'COPY').map((rest) => {
    const [source = '', target = '', ...more] = rest.split(' ').filter((word) => !word.startsWith('--'))
    if (more.length > 0) throw new Error(`COPY ${rest}: one path at a time`)
    const flag = (name: string): string | null => new RegExp(`--${name}=(\\S+)`).exec(rest)?.[1] ?? null
    return { from: flag('from'), source, target, owner: flag('chown') }
  })
}
