import { constants, open, readFile } from 'node:fs/promises'
import { relative, resolve } from 'node:path'
import { type ConfigProblem, FILE_START, type FileFault } from '../operator-files/config-error.ts'
import { explainIssue } from '../operator-files/explain-issue.ts'
import { errorCode, isWorldWritable } from '../operator-files/secret-file.ts'
import { readOperatorYaml } from '../operator-files/yaml.ts'
import { priceTable } from './options.ts'
import { type OpenPriceTable, tableDigest } from './rates.ts'

const BUILTIN = new URL('./table.json', import.meta.url)

/** Bytes. */
const MAX_TABLE = 1_048_576

interface UnreadTable {
  readonly problems: readonly ConfigProblem[]
}

/** The shipped table, once somebody has asked for it. */
let builtin: Promise<OpenPriceTable> | null = null

/** Reads a table of prices; null for `none`. `table`: as the options name it. */
export async function openPriceTable(
  table: string,
  directory: string,
): Promise<OpenPriceTable | UnreadTable | null> {
  if (table === 'none') return null
  if (table === 'builtin') {
    builtin ??= readBuiltin()
    return builtin
  }
  const path = resolve(directory, table)
  const faults: FileFault[] = []
  const bytes = await readTable(path, faults)
  const opened = bytes && parseTable(bytes, faults)
  return opened ?? { problems: faults.map((fault) => ({ file: relative(directory, path), ...fault })) }
}

async function readBuiltin(): Promise<OpenPriceTable> {
  const text = await readFile(BUILTIN, 'utf8')
  const prices = priceTable.parse(JSON.parse(text))
  return { prices, digest: tableDigest(text), source: 'builtin' }
}

async function readTable(path: string, faults: FileFault[]): Promise<Buffer | null> {
  const refuse = (message: string): null => {
    faults.push({ ...FILE_START, message })
    return null
  }
  try {
    await using handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
    const stats = await handle.stat()
    if (!stats.isFile()) return refuse('is not a regular file')
    if (isWorldWritable(stats.mode)) return refuse('everybody may write to this file: chmod o-w it')
    return stats.size > MAX_TABLE ? refuse('is larger than 1 MiB') : await handle.readFile()
  } catch (error) {
    return refuse(`cannot be read (${errorCode(error)})`)
  }
}

function parseTable(bytes: Buffer, faults: FileFault[]): OpenPriceTable | null {
  const yaml = readOperatorYaml(bytes.toString('utf8'), {}, faults)
  if (!yaml) return null
  const read = priceTable.safeParse(yaml.value)
  if (read.success) return { prices: read.data, digest: tableDigest(bytes), source: 'table' }
  const checked = { plugin: 'prices', schema: priceTable, yaml }
  faults.push(...read.error.issues.flatMap((issue) => explainIssue(issue, checked)))
  return null
}
