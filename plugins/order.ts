import type { Problem } from './operator-files/config-error.ts'
import { isModulePath, type OperatorFile } from './operator-files/files.ts'

/** What a plugin needs and gives, by the names of the facts. */
export interface Declared {
  readonly needs: readonly string[]
  readonly gives: readonly string[]
}

/** What the compiler checks for the built-in plugins, once more for files, which escape it. */
export const BUILT_IN: ReadonlyMap<string, Declared> = new Map([
  ['pin', { needs: [], gives: ['principal'] }],
  ['dpop', { needs: ['principal'], gives: ['proof', 'token'] }],
  ['capability', { needs: ['principal', 'proof', 'token'], gives: ['granted'] }],
  ['policy', { needs: ['principal', 'proof', 'token', 'demand', 'call', 'granted'], gives: [] }],
  ['audit', { needs: ['granted'], gives: [] }],
])

/** Known before any plugin of a file runs: the route states what is asked for. */
const FROM_THE_ROUTE: readonly string[] = ['demand', 'call']

/** What may stand between the gate and the record, or be absent: it can only refuse. */
const isCheck = (plugin: string): boolean => plugin === 'policy' || isModulePath(plugin)

type Placed = Pick<OperatorFile, 'plugin' | 'file' | 'position'>

/**
 * Tries the files' order with what each plugin needs and gives, and says everything that cannot work: a mandatory plugin
 * missing or twice, a need that is given too late or never, the policy or a module outside capability … audit.
 * `declared` is keyed by file name; a file that is not in it takes no part in the pipeline (the provider list).
 * Returns no problems where the order works. Does NOT check options.
 */
export function checkOrder(files: readonly Placed[], declared: ReadonlyMap<string, Declared>): Problem[] {
  return [...missing(files), ...repeated(files), ...misplaced(files), ...unmet(files, declared)]
}

const problem = ({ file, position }: Placed, message: string): Problem => ({ file, ...position, message })

const MANDATORY_FILES: readonly (readonly [string, string])[] = [
  ['pin', '10-pin.yaml'],
  ['dpop', '20-dpop.yaml'],
  ['capability', '30-capability.yaml'],
  ['audit', '40-audit.yaml'],
]
const NEVER_REMOVED = 'pin, dpop, capability and audit can be tuned but never removed'

function missing(files: readonly Placed[]): Problem[] {
  return MANDATORY_FILES.filter(([plugin]) => !files.some((file) => file.plugin === plugin)).map(
    ([plugin, file]) => ({
      file,
      line: 1,
      column: 1,
      message: `plugin ${plugin} is missing: restore ${file}; ${NEVER_REMOVED}`,
    }),
  )
}

/** Built-in plugins that stand in more than one file. An operator's own module may: its options differ. */
function repeated(files: readonly Placed[]): Problem[] {
  return files.flatMap((file, index) => {
    const first = files.findIndex(({ plugin }) => plugin === file.plugin)
    if (isModulePath(file.plugin) || first === index) return []
    return [
      problem(
        file,
        `plugin ${file.plugin} stands twice, in ${files[first]?.file} and in ${file.file}: keep one`,
      ),
    ]
  })
}

/** Before the gate a check could look at what nobody was granted; after the record it would change what was recorded. */
function misplaced(files: readonly Placed[]): Problem[] {
  const gate = files.findIndex(({ plugin }) => plugin === 'capability')
  const record = files.findIndex(({ plugin }) => plugin === 'audit')
  return files.flatMap((file, index) => {
    if (!isCheck(file.plugin)) return []
    if (gate >= 0 && index < gate) return [outside(file, 'behind', files[gate])]
    return record >= 0 && index > record ? [outside(file, 'before', files[record])] : []
  })
}

function outside(file: Placed, side: 'behind' | 'before', anchor: Placed | undefined): Problem {
  const what = isModulePath(file.plugin) ? 'a module of your own' : 'it'
  const rule = `${what} stands after capability and before audit`
  return problem(
    file,
    `${file.plugin}: ${rule}; rename ${file.file} so that it comes ${side} ${anchor?.file}`,
  )
}

/** Walks the files in order with the facts known so far. */
function unmet(files: readonly Placed[], declared: ReadonlyMap<string, Declared>): Problem[] {
  const known = new Set(FROM_THE_ROUTE)
  const problems: Problem[] = []
  for (const [index, file] of files.entries()) {
    const { needs = [], gives = [] } = declared.get(file.file) ?? {}
    for (const need of needs) {
      if (!known.has(need)) problems.push(...late(file, need, files.slice(index + 1), declared))
    }
    for (const given of gives) known.add(given)
  }
  return problems
}

function late(
  file: Placed,
  need: string,
  later: readonly Placed[],
  declared: ReadonlyMap<string, Declared>,
): Problem[] {
  const giver = later.find((other) => declared.get(other.file)?.gives.includes(need))
  if (giver) {
    const cure = `rename one so that ${giver.plugin} comes first`
    return [
      problem(
        file,
        `${file.plugin} needs ${need}, which ${giver.plugin} gives only later, in ${giver.file}; ${cure}`,
      ),
    ]
  }
  // Where the plugin that gives it is missing altogether, that is said already and is the cause.
  const cause = [...BUILT_IN.values()].some(({ gives }) => gives.includes(need))
  return cause ? [] : [problem(file, `${file.plugin} needs ${need}, which no plugin gives`)]
}
