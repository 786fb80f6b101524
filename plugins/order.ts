import { catalogueRow, type PluginCatalogue } from './catalogue.ts'
import { type ConfigProblem, FILE_START } from './operator-files/config-error.ts'
import { isModulePath, type OperatorFile } from './operator-files/files.ts'

/** Known before any plugin of a file runs: the route states its demand. */
const FROM_THE_ROUTE: readonly string[] = ['demand', 'call']

type PlacedFile = Pick<OperatorFile, 'plugin' | 'file' | 'shadow' | 'position'>

export interface PluginOrder {
  /** Sorted by file name. */
  readonly files: readonly PlacedFile[]
  readonly catalogue: PluginCatalogue
  /** The facts that each operator's module needs, by the name of the file that names it. */
  readonly moduleNeeds: ReadonlyMap<string, readonly string[]>
}

/**
 * Tries the files' order with each plugin's needs and facts, and says everything that cannot work: a
 * mandatory plugin missing or twice, a need that is given too late or never, the policy or a module outside
 * capability … audit. Does NOT check options.
 */
export function checkOrder(order: PluginOrder): ConfigProblem[] {
  return [
    ...missingPlugins(order),
    ...repeatedPlugins(order),
    ...misplacedPlugins(order),
    ...unmetNeeds(order),
  ]
}

const problem = ({ file, position }: PlacedFile, message: string): ConfigProblem => ({
  file,
  ...position,
  message,
})

function missingPlugins({ files, catalogue }: PluginOrder): ConfigProblem[] {
  const mandatory = Object.entries(catalogue).flatMap(([plugin, row]) =>
    'file' in row ? [{ plugin, file: row.file }] : [],
  )
  const kept = `${inWords(mandatory.map(({ plugin }) => plugin))} can be tuned but never removed`
  return mandatory
    .filter(({ plugin }) => !files.some((file) => file.plugin === plugin))
    .map(({ plugin, file }) => ({
      ...FILE_START,
      file,
      message: `plugin ${plugin} is missing: restore ${file}; ${kept}`,
    }))
}

const inWords = (names: readonly string[]): string => `${names.slice(0, -1).join(', ')} and ${names.at(-1)}`

/** Built-in plugins in more than one file; a shadow may stand next to the one that judges. */
function repeatedPlugins({ files }: PluginOrder): ConfigProblem[] {
  return files.flatMap((file, index) => {
    const first = files.findIndex(({ plugin, shadow }) => plugin === file.plugin && shadow === file.shadow)
    if (isModulePath(file.plugin) || first === index) return []
    return [
      problem(
        file,
        `plugin ${file.plugin} is there twice, in ${files[first]?.file} and in ${file.file}: keep one`,
      ),
    ]
  })
}

/**
 * Before the gate a check could look at calls without a grant; after the record it would change the recorded
 * call.
 */
function misplacedPlugins({ files, catalogue }: PluginOrder): ConfigProblem[] {
  const placeOf = ({ plugin }: PlacedFile) =>
    isModulePath(plugin) ? 'check' : catalogueRow(catalogue, plugin)?.place
  const gate = files.findIndex((file) => placeOf(file) === 'gate')
  const record = files.findIndex((file) => placeOf(file) === 'record')
  return files.flatMap((file, index) => {
    if (placeOf(file) !== 'check') return []
    if (gate >= 0 && index < gate) return [outOfOrderProblem(file, 'after', files[gate])]
    return record >= 0 && index > record ? [outOfOrderProblem(file, 'before', files[record])] : []
  })
}

function outOfOrderProblem(
  file: PlacedFile,
  side: 'after' | 'before',
  anchor: PlacedFile | undefined,
): ConfigProblem {
  const what = isModulePath(file.plugin) ? 'a module of your own' : 'it'
  const rule = `${what} must come after capability and before audit`
  return problem(
    file,
    `${file.plugin}: ${rule}; rename ${file.file} so that it comes ${side} ${anchor?.file}`,
  )
}

interface FileRequirements {
  readonly placed: PlacedFile
  readonly needs: readonly string[]
  readonly gives: readonly string[]
}

function unmetNeeds({ files, catalogue, moduleNeeds }: PluginOrder): ConfigProblem[] {
  const stated = files.map((placed): FileRequirements => {
    const { needs, gives } = catalogueRow(catalogue, placed.plugin) ?? {
      needs: moduleNeeds.get(placed.file) ?? [],
      gives: [],
    }
    return { placed, needs, gives }
  })
  const known = new Set(FROM_THE_ROUTE)
  const problems: ConfigProblem[] = []
  for (const [index, { placed, needs, gives }] of stated.entries()) {
    for (const need of needs) {
      if (!known.has(need))
        problems.push(...lateFactProblems(placed, need, stated.slice(index + 1), catalogue))
    }
    for (const given of gives) known.add(given)
  }
  return problems
}

function lateFactProblems(
  file: PlacedFile,
  need: string,
  later: readonly FileRequirements[],
  catalogue: PluginCatalogue,
): ConfigProblem[] {
  const giver = later.find(({ gives }) => gives.includes(need))?.placed
  if (giver) {
    const cure = `rename one so that ${giver.plugin} comes first`
    return [
      problem(
        file,
        `${file.plugin} needs ${need}, which ${giver.plugin} gives only later, in ${giver.file}; ${cure}`,
      ),
    ]
  }
  // If the plugin that gives it is missing altogether, that is reported already and is the cause.
  const cause = Object.values(catalogue).some(({ gives }) => gives.includes(need))
  return cause ? [] : [problem(file, `${file.plugin} needs ${need}, which no plugin gives`)]
}
